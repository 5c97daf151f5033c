"""Attention of prompts over pages: sequences of any number of queries, which follow each other in one row of tokens.

A program attends for a block of one sequence's queries, and for all query heads of one key head, so that each key is read once for
all of them.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.attention.cache import LayerCache
from llmendpoint_server.engine.triton.decode import _tanh
from llmendpoint_server.engine.triton.shapes import SMALLEST_TILE, heads_together, padded, precision

BLOCK_ROWS = 128
"""Rows of a program's tile: queries times the heads of a group."""
BLOCK_KEYS = 64


@triton.jit
def _sequence_of(ends, block, rows, BLOCK_QUERIES: tl.constexpr):
    """The sequence that a block belongs to, and its first block. Each sequence has room for one block more than its queries fill."""
    low, high = 0, rows
    base = tl.load(ends)
    while high - low > 1:
        middle = (low + high) // 2
        if (tl.load(ends + middle) - base) // BLOCK_QUERIES + middle <= block:
            low = middle
        else:
            high = middle
    return low, (tl.load(ends + low) - base) // BLOCK_QUERIES + low


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["tables", "ends", "lengths", "sinks"])
def _prefill(
    q, q_token, q_head, keys, values, k_page, k_token, v_page, v_token, tables, table_row, ends, lengths, sinks,
    out, rows, scale, softcap, window, key_dim, value_dim,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PADDED: tl.constexpr, KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr, BLOCK_QUERIES: tl.constexpr,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    block, kv_head = tl.program_id(0), tl.program_id(1)
    row, first_block = _sequence_of(ends, block, rows, BLOCK_QUERIES)
    first_token = tl.load(ends + row)
    count = (tl.load(ends + row + 1) - first_token).to(tl.int32)
    from_query = ((block - first_block) * BLOCK_QUERIES).to(tl.int32)
    if from_query >= count:
        return
    length = tl.load(lengths + row).to(tl.int32)
    before = length - count
    lines = tl.arange(0, BLOCK_QUERIES * GROUP_PADDED)
    dims, out_dims = tl.arange(0, KEY_DIM), tl.arange(0, VALUE_DIM)
    queries, heads = from_query + lines // GROUP_PADDED, lines % GROUP_PADDED
    mine = (queries < count) & (heads < GROUP)
    head = kv_head * GROUP + heads
    token = first_token + queries
    query = tl.load(
        q + token[:, None] * q_token + head[:, None] * q_head + dims[None],
        mask=mine[:, None] & (dims[None] < key_dim),
        other=0.0,
    )
    places_of_queries = before + queries
    begin, end = 0, tl.minimum(before + from_query + BLOCK_QUERIES, length)
    lowest = 0
    if WINDOW:
        lowest = tl.maximum(before + from_query - window + 1, 0)
        begin = lowest // BLOCK * BLOCK
    highest = tl.full([BLOCK_QUERIES * GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_QUERIES * GROUP_PADDED], tl.float32)
    if SINKS:
        highest = tl.load(sinks + head, mask=mine, other=0.0).to(tl.float32)
        total += 1.0
    sums = tl.zeros([BLOCK_QUERIES * GROUP_PADDED, VALUE_DIM], tl.float32)
    for start in tl.range(begin, end, BLOCK):
        places = start + tl.arange(0, BLOCK)
        there = (places < end) & (places >= lowest)
        page = tl.load(tables + row * table_row + places // PAGE, mask=there, other=0).to(tl.int64)
        at_key = page * k_page + (places % PAGE) * k_token + kv_head * key_dim
        key = tl.load(
            keys + at_key[None] + dims[:, None], mask=there[None] & (dims[:, None] < key_dim), other=0.0
        )
        scores = tl.dot(query, key, input_precision=PRECISION) * scale
        if SOFTCAP:
            scores = softcap * _tanh(scores / softcap)
        seen = there[None] & (places[None] <= places_of_queries[:, None])
        if WINDOW:
            seen = seen & (places[None] > places_of_queries[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, 1))
        # A query that has seen no key yet: what is no number must not get into its sums.
        base = tl.where(new == float("-inf"), 0.0, new)
        weights = tl.exp(scores - base[:, None])
        kept = tl.exp(highest - base)
        at_value = page * v_page + (places % PAGE) * v_token + kv_head * value_dim
        value = tl.load(
            values + at_value[:, None] + out_dims[None],
            mask=there[:, None] & (out_dims[None] < value_dim),
            other=0.0,
        )
        sums = sums * kept[:, None] + tl.dot(weights.to(value.dtype), value, input_precision=PRECISION)
        total = total * kept + tl.sum(weights, 1)
        highest = new
    at = (token * KV_HEADS * GROUP + head) * value_dim
    tl.store(
        out + at[:, None] + out_dims[None],
        (sums / tl.where(total == 0, 1.0, total)[:, None]).to(out.dtype.element_ty),
        mask=mine[:, None] & (out_dims[None] < value_dim),
    )


def prefill(
    query: torch.Tensor,
    layer: LayerCache,
    page_size: int,
    tables: torch.Tensor,
    ends: torch.Tensor,
    lengths: torch.Tensor,
    rules: Rules,
    out: torch.Tensor,
    tokens: int,
) -> None:
    """Write to `out` `[T, heads, value_dim]` what `query` `[T, heads, key_dim]`, of any strides but the last, attends to. For rows of `tokens` tokens in
    all: `tables` int32 `[rows, pages]`, `ends` `[rows + 1]` the flat tokens between them, `lengths` `[rows]`."""
    heads = query.shape[1]
    kv_heads, group = layer.kv_heads, heads // layer.kv_heads
    group_padded, window = heads_together(group), rules.sliding_window
    block_queries = max(BLOCK_ROWS // group_padded, SMALLEST_TILE // group_padded, 1)
    sinks = lengths if rules.sinks is None else rules.sinks
    rows = len(lengths)
    assert query.stride(2) == 1 and out.is_contiguous()
    wide = padded(max(layer.key_dim, layer.value_dim)) > 128 or query.dtype is torch.float32
    _prefill[tokens // block_queries + rows, kv_heads](
        query, query.stride(0), query.stride(1), layer.keys, layer.values,
        page_size * kv_heads * layer.key_dim, kv_heads * layer.key_dim,
        page_size * kv_heads * layer.value_dim, kv_heads * layer.value_dim,
        tables, tables.stride(0), ends, lengths, sinks, out, rows, rules.scale, rules.softcap or 1.0, window or 0,
        layer.key_dim, layer.value_dim,
        KV_HEADS=kv_heads, GROUP=group, GROUP_PADDED=group_padded, KEY_DIM=padded(layer.key_dim),
        VALUE_DIM=padded(layer.value_dim), PAGE=page_size, BLOCK=BLOCK_KEYS // 2 if wide else BLOCK_KEYS,
        BLOCK_QUERIES=block_queries, WINDOW=window is not None, SOFTCAP=rules.softcap is not None,
        SINKS=rules.sinks is not None, PRECISION=precision(query.dtype), num_warps=8, num_stages=2 if wide else 3,
    )  # fmt: skip
