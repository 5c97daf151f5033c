"""Compiles the kernels of engine/triton for a GPU that need not be there, in a process of its own: elsewhere Triton interprets them. Prints the name of each."""

from __future__ import annotations

import sys
from itertools import product
from typing import Any

from triton import compile as compiled
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from llmendpoint_server.engine.triton import decode, few, kernels, store

HALF, WHOLE = "*bf16", "*fp32"
NORM = {"x": HALF, "weight": WHOLE, "out": HALF, "dim": "i32", "eps": "fp32"}
LINEAR = {
    **dict.fromkeys(("x", "weight", "bias", "residual", "out"), HALF),
    "scale": WHOLE,
    **dict.fromkeys(("count", "outputs"), "i32"),
    "eps": "fp32",
}


def make(kernel: Any, types: dict[str, str], constants: dict[str, object], capability: int) -> None:
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr") for name in names}
    assert {name for name in names if name not in types} == constants.keys()
    source = ASTSource(kernel, signature, {(names.index(name),): value for name, value in constants.items()})
    assert compiled(source, target=GPUTarget("cuda", capability, 32)).asm["cubin"]
    print(kernel.__name__)


def turning() -> dict[str, str]:
    pointers = {"qkv": HALF, "cos": HALF, "sin": HALF, "query_weight": WHOLE, "key_weight": WHOLE}
    return {**pointers, "query_eps": "fp32", "key_eps": "fp32", "width": "i32"}


def main(capability: int) -> None:
    ahead = {"ahead": capability >= 90}
    make(kernels.norm, NORM, {"block": 1024, **ahead}, capability)
    make(kernels.add_norm, {**NORM, "residual": HALF, "added": HALF}, {"block": 1024, **ahead}, capability)
    for normed, rotary in ((True, 128), (True, 64), (False, 64)):
        heads = {"queries": 16, "keys": 8, "dim": 128, "rotary": rotary, "normed": normed}
        blocks = {"heads_block": 4, "half_block": 64, "rest_block": 64}
        make(kernels.rotate, turning(), {**heads, **blocks, **ahead}, capability)
    for silu in (True, False):
        gate = {"halves": HALF, "out": HALF, "width": "i32"}
        make(kernels.gate, gate, {"silu": silu, "block": 512, **ahead}, capability)
    for rows, on_the_way in product((1, 8), (True, False)):
        names = ("normed", "added", "biased", "gated", "silu")
        sizes = {"inputs": 1024, "rows": rows, "outputs_block": 8, "inputs_block": 1024}
        flags = dict.fromkeys(names, on_the_way)
        make(few.few, LINEAR, {**sizes, **flags, **ahead}, capability)


def attention(capability: int) -> None:
    pages = dict.fromkeys(("keys", "values", "out"), HALF)
    numbers = dict.fromkeys(("window", "key_dim", "value_dim"), "i32")
    shapes = {"KV_HEADS": 8, "KEY_DIM": 128, "VALUE_DIM": 128, "AHEAD": capability >= 90}
    states = {"key": HALF, "value": HALF, **dict.fromkeys(("k_token", "k_head", "v_token", "v_head"), "i32")}
    sizes = {"key_dim": "i32", "value_dim": "i32", "slots": "*i64"}
    make(store._store, {**states, "keys": HALF, "values": HALF, **sizes}, shapes, capability)
    strides = ("q_row", "q_head", "k_page", "k_token", "v_page", "v_token", "table_row")
    types = {"q": HALF, **pages, **dict.fromkeys(strides, "i32"), **numbers, "tables": "*i32"}
    types |= {"lengths": "*i64", "sinks": "*i64", "partial": WHOLE, "scale": "fp32", "softcap": "fp32"}
    shared = {"BLOCK": 128, "PART": 128, "PARTS": 8, "WINDOW": False, "SINKS": False}
    group = {"GROUP": 2, "GROUP_PADDED": 16, "PAGE": 16, "SOFTCAP": False, "PRECISION": "ieee"}
    make(decode._decode, types, {**shapes, **shared, **group}, capability)
    sums = {
        "partial": WHOLE,
        "lengths": "*i64",
        "sinks": "*i64",
        "out": HALF,
        "window": "i32",
        "value_dim": "i32",
    }
    parts = {"HEADS": 16, "PARTS_PADDED": 8, "VALUE_DIM": 128, "AHEAD": capability >= 90}
    make(decode._add_up, sums, {**shared, **parts}, capability)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    attention(int(sys.argv[1]))
