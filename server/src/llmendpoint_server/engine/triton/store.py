"""Writes a step's keys and values to their slots, both in one launch."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from llmendpoint_server.engine.attention.cache import LayerCache
from llmendpoint_server.engine.triton.shapes import padded


@triton.jit(do_not_specialize_on_alignment=["slots"])
def _store(
    key, value, k_token, k_head, v_token, v_head, keys, values, slots, key_dim, value_dim,
    KV_HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
):  # fmt: skip
    token, head = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + token).to(tl.int64) * KV_HEADS + head
    dims, value_dims = tl.arange(0, KEY_DIM), tl.arange(0, VALUE_DIM)
    token = token.to(tl.int64)
    one = tl.load(key + token * k_token + head * k_head + dims, mask=dims < key_dim)
    tl.store(keys + slot * key_dim + dims, one, mask=dims < key_dim)
    other = tl.load(value + token * v_token + head * v_head + value_dims, mask=value_dims < value_dim)
    tl.store(values + slot * value_dim + value_dims, other, mask=value_dims < value_dim)


def store(key: torch.Tensor, value: torch.Tensor, layer: LayerCache, slots: torch.Tensor) -> None:
    """`key`, `value` `[T, kv_heads, dim]`, of any strides but the last. `slots` `[T]`: page * page_size + place in the page."""
    tokens, heads, _ = key.shape
    assert key.stride(2) == 1
    assert value.stride(2) == 1
    _store[tokens, heads](
        key, value, key.stride(0), key.stride(1), value.stride(0), value.stride(1), layer.keys, layer.values, slots,
        layer.key_dim, layer.value_dim,
        KV_HEADS=heads, KEY_DIM=padded(layer.key_dim), VALUE_DIM=padded(layer.value_dim), num_warps=1,
    )  # fmt: skip
