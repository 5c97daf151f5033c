"""Attention of decoding sequences over pages: one query each, the keys in parts that are attended to side by side (split-KV).

A program attends to one part of a sequence's keys for all query heads of one key head, so that each key is read once. A second kernel adds
the parts up. How many parts a sequence has depends on its length alone, on the device: so a step can be captured in a graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda

from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.attention.cache import LayerCache
from llmendpoint_server.engine.triton.shapes import (
    SMALLEST_TILE,
    heads_together,
    launched,
    padded,
    precision,
    score_scale,
)

BLOCK_KEYS = 128
"""Keys that a program loads at a time. 128 keys, 4 warps and 2 stages read 90 % of an H200's bandwidth, 64 keys and 3 stages 79 %."""


_SPLITS = ((8, 128, 64), (32, 128, 32), (64, 256, 16), (None, 512, 8))
"""Up to so many rows; the fewest keys of a part, and the most parts of a sequence."""


@dataclass(frozen=True, slots=True)
class Split:
    """`part`: the fewest keys of a part. `parts`: the most of a sequence."""

    part: int
    parts: int


def split(rows: int, longest: int) -> Split:
    """For a step of `rows` sequences of at most `longest` keys: the fewer rows, the shorter the parts, so that all processors of the
    device have some."""
    part, most = next((part, most) for limit, part, most in _SPLITS if limit is None or rows <= limit)
    return Split(part, min(most, -(-longest // part)))


@triton.jit
def _tanh(x):
    return 1 - 2 / (tl.exp(2 * x) + 1)


@triton.jit
def _parts(
    length, window, PART: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr, WINDOW: tl.constexpr
):
    """The first key of a sequence that its query sees, and the keys of a part."""
    first = 0
    if WINDOW:
        first = tl.maximum(length - window, 0)
    seen = length - first
    each = tl.cdiv(tl.cdiv(seen, PARTS), BLOCK) * BLOCK
    return first, tl.maximum(each, PART)


@triton.jit(do_not_specialize_on_alignment=["tables", "lengths", "sinks"])
def _decode(
    q, q_row, q_head, keys, values, k_page, k_token, v_page, v_token, tables, table_row, lengths, sinks,
    out, partial, scale, softcap, window, key_dim, value_dim,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PADDED: tl.constexpr, KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr, PARTS: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, PRECISION: tl.constexpr, AHEAD: tl.constexpr,
):  # fmt: skip
    if AHEAD:
        cuda.gdc_launch_dependents()
    row, kv_head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + row).to(tl.int32)
    first, each = _parts(length, window, PART, PARTS, BLOCK, WINDOW)
    begin = first + part * each
    if begin >= length:
        return
    end = tl.minimum(begin + each, length)
    heads, dims, out_dims = tl.arange(0, GROUP_PADDED), tl.arange(0, KEY_DIM), tl.arange(0, VALUE_DIM)
    head = kv_head * GROUP + heads
    if AHEAD:
        cuda.gdc_wait()
    query = tl.load(
        q + row * q_row + head[:, None] * q_head + dims[None],
        mask=(heads[:, None] < GROUP) & (dims[None] < key_dim),
        other=0.0,
    )
    highest = tl.full([GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([GROUP_PADDED], tl.float32)
    sums = tl.zeros([GROUP_PADDED, VALUE_DIM], tl.float32)
    for start in tl.range(begin, end, BLOCK):
        places = start + tl.arange(0, BLOCK)
        seen = places < end
        page = tl.load(tables + row * table_row + places // PAGE, mask=seen, other=0).to(tl.int64)
        at_key = page * k_page + (places % PAGE) * k_token + kv_head * key_dim
        key = tl.load(
            keys + at_key[None] + dims[:, None], mask=seen[None] & (dims[:, None] < key_dim), other=0.0
        )
        scores = tl.dot(query, key, input_precision=PRECISION) * scale
        if SOFTCAP:
            scores = softcap * 1.4426950408889634 * _tanh(scores / softcap)
        scores = tl.where(seen[None], scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        weights = tl.exp2(scores - new[:, None])
        before = tl.exp2(highest - new)
        at_value = page * v_page + (places % PAGE) * v_token + kv_head * value_dim
        value = tl.load(
            values + at_value[:, None] + out_dims[None],
            mask=seen[:, None] & (out_dims[None] < value_dim),
            other=0.0,
        )
        sums = sums * before[:, None] + tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        total = total * before + tl.sum(weights, 1)
        highest = new
    mine = heads < GROUP
    at = row * KV_HEADS * GROUP + head
    if first + each >= length:  # the only part
        if SINKS:
            sink = tl.load(sinks + head, mask=mine, other=0.0).to(tl.float32) * 1.4426950408889634
            new = tl.maximum(highest, sink)
            before = tl.exp2(highest - new)
            total = total * before + tl.exp2(sink - new)
            sums = sums * before[:, None]
        tl.store(
            out + at[:, None] * value_dim + out_dims[None],
            (sums / total[:, None]).to(out.dtype.element_ty),
            mask=mine[:, None] & (out_dims[None] < value_dim),
        )
    else:
        place = partial + (at * PARTS + part) * (VALUE_DIM + 2)
        tl.store(place[:, None] + out_dims[None], sums, mask=mine[:, None])
        tl.store(place + VALUE_DIM, highest, mask=mine)
        tl.store(place + VALUE_DIM + 1, total, mask=mine)


@triton.jit(do_not_specialize_on_alignment=["lengths", "sinks"])
def _add_up(
    partial, lengths, sinks, out, window, value_dim, HEADS: tl.constexpr, VALUE_DIM: tl.constexpr, BLOCK: tl.constexpr,
    PART: tl.constexpr, PARTS: tl.constexpr, PARTS_PADDED: tl.constexpr, WINDOW: tl.constexpr, SINKS: tl.constexpr,
    AHEAD: tl.constexpr,
):  # fmt: skip
    if AHEAD:
        cuda.gdc_launch_dependents()
        cuda.gdc_wait()  # before it may return: the kernel after it waits for this one only
    row, head = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + row).to(tl.int32)
    first, each = _parts(length, window, PART, PARTS, BLOCK, WINDOW)
    if first + each >= length:
        return
    parts, dims = tl.arange(0, PARTS_PADDED), tl.arange(0, VALUE_DIM)
    there = first + parts * each < length
    place = partial + ((row * HEADS + head) * PARTS + parts) * (VALUE_DIM + 2)
    highest = tl.load(place + VALUE_DIM, mask=there, other=float("-inf"))
    top = tl.max(highest, 0)
    if SINKS:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        top = tl.maximum(top, sink)
    shares = tl.exp2(highest - top)
    total = tl.sum(tl.load(place + VALUE_DIM + 1, mask=there, other=0.0) * shares, 0)
    if SINKS:
        total += tl.exp2(sink - top)
    sums = tl.load(place[:, None] + dims[None], mask=there[:, None], other=0.0)
    result = tl.sum(sums * shares[:, None], 0) / total
    tl.store(
        out + (row * HEADS + head) * value_dim + dims, result.to(out.dtype.element_ty), mask=dims < value_dim
    )


def decode(
    query: torch.Tensor,
    layer: LayerCache,
    page_size: int,
    tables: torch.Tensor,
    lengths: torch.Tensor,
    rules: Rules,
    out: torch.Tensor,
    how: Split,
    ahead: bool,
) -> None:
    """Write to `out` `[rows, heads, value_dim]` what `query` `[rows, heads, key_dim]`, of any strides but the last, attends to. `tables` int32
    `[>= rows, pages]`, `lengths` `[rows]`. `ahead`: as of `launched`."""
    rows, heads, _ = query.shape
    kv_heads, group = layer.kv_heads, heads // layer.kv_heads
    value_dim, window = padded(layer.value_dim), rules.sliding_window
    assert query.stride(2) == 1
    assert out.is_contiguous()
    # A sink is no Python number: a tensor of any kind stands for it where there is none.
    sinks = lengths if rules.sinks is None else rules.sinks
    scale = score_scale(rules)
    partial = torch.empty(
        rows * heads * how.parts * (value_dim + 2), dtype=torch.float32, device=query.device
    )
    shared: dict[str, Any] = {
        "BLOCK": BLOCK_KEYS, "PART": how.part, "PARTS": how.parts, "WINDOW": window is not None,
        "SINKS": rules.sinks is not None, "VALUE_DIM": value_dim, "AHEAD": ahead, **launched(ahead),
    }  # fmt: skip
    _decode[rows, kv_heads, how.parts](
        query, query.stride(0), query.stride(1), layer.keys, layer.values,
        page_size * kv_heads * layer.key_dim, kv_heads * layer.key_dim,
        page_size * kv_heads * layer.value_dim, kv_heads * layer.value_dim,
        tables, tables.stride(0), lengths, sinks, out, partial, scale, rules.softcap or 1.0, window or 0,
        layer.key_dim, layer.value_dim,
        KV_HEADS=kv_heads, GROUP=group, GROUP_PADDED=max(SMALLEST_TILE, heads_together(group)),
        KEY_DIM=padded(layer.key_dim), PAGE=page_size, SOFTCAP=rules.softcap is not None,
        PRECISION=precision(query.dtype), num_warps=4, num_stages=2, **shared,
    )  # fmt: skip
    if how.parts > 1:
        _add_up[rows, heads](
            partial, lengths, sinks, out, window or 0, layer.value_dim, HEADS=heads,
            PARTS_PADDED=triton.next_power_of_2(how.parts), num_warps=4, **shared,
        )  # fmt: skip
