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
from llmendpoint_server.engine.triton.shapes import (
    SMALLEST_TILE,
    heads_together,
    padded,
    precision,
    score_scale,
)

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


@triton.jit
def _block(
    query, keys, values, k_page, k_token, v_page, v_token, table, start, end, lowest, places_of_queries, head,
    key_dim, value_dim, scale, softcap, window, highest, total, sums,
    KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr, EVEN: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    MASKED: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Attend to one block of keys. Not `MASKED`: every query sees all of them. Scores are in powers of 2, unless they are capped."""
    places = start + tl.arange(0, BLOCK)
    dims, out_dims = tl.arange(0, KEY_DIM), tl.arange(0, VALUE_DIM)
    if MASKED:
        there = (places < end) & (places >= lowest)
        page = tl.load(table + places // PAGE, mask=there, other=0).to(tl.int64)
    else:
        page = tl.load(table + places // PAGE).to(tl.int64)
    at_key = keys + (page * k_page + (places % PAGE) * k_token + head * key_dim)[None] + dims[:, None]
    at_value = (
        values + (page * v_page + (places % PAGE) * v_token + head * value_dim)[:, None] + out_dims[None]
    )
    if MASKED:
        key = tl.load(at_key, mask=there[None] & (dims[:, None] < key_dim), other=0.0)
        value = tl.load(at_value, mask=there[:, None] & (out_dims[None] < value_dim), other=0.0)
    elif EVEN:
        key = tl.load(at_key)
        value = tl.load(at_value)
    else:
        key = tl.load(at_key, mask=dims[:, None] < key_dim, other=0.0)
        value = tl.load(at_value, mask=out_dims[None] < value_dim, other=0.0)
    scores = tl.dot(query, key, input_precision=PRECISION) * scale
    if SOFTCAP:
        scores = softcap * 1.4426950408889634 * _tanh(scores / softcap)
    if MASKED:
        seen = there[None] & (places[None] <= places_of_queries[:, None])
        if WINDOW:
            seen = seen & (places[None] > places_of_queries[:, None] - window)
        scores = tl.where(seen, scores, float("-inf"))
    new = tl.maximum(highest, tl.max(scores, 1))
    base = new
    if MASKED:  # a query that has seen no key yet: what is no number must not get into its sums
        base = tl.where(new == float("-inf"), 0.0, new)
    weights = tl.exp2(scores - base[:, None])
    kept = tl.exp2(highest - base)
    sums = tl.dot(weights.to(value.dtype), value, sums * kept[:, None], input_precision=PRECISION)
    return new, total * kept + tl.sum(weights, 1), sums


@triton.jit(do_not_specialize=["rows"], do_not_specialize_on_alignment=["tables", "ends", "lengths", "sinks"])
def _prefill(
    q, q_token, q_head, keys, values, k_page, k_token, v_page, v_token, tables, table_row, ends, lengths, sinks,
    out, rows, scale, softcap, window, key_dim, value_dim,
    KV_HEADS: tl.constexpr, GROUP: tl.constexpr, GROUP_PADDED: tl.constexpr, KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr, EVEN: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    BLOCK_QUERIES: tl.constexpr, WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, SINKS: tl.constexpr,
    PRECISION: tl.constexpr,
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
    end = tl.minimum(before + from_query + BLOCK_QUERIES, length)
    lowest = 0
    whole_from = 0  # all queries see the blocks between these two
    whole_to = (before + from_query + 1) // BLOCK * BLOCK
    if WINDOW:
        lowest = tl.maximum(before + from_query - window + 1, 0)
        last = tl.minimum(before + from_query + BLOCK_QUERIES, length)
        whole_from = tl.cdiv(tl.maximum(last - window, 0), BLOCK) * BLOCK
        whole_to = tl.maximum(whole_to, whole_from)
    begin = lowest // BLOCK * BLOCK
    highest = tl.full([BLOCK_QUERIES * GROUP_PADDED], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_QUERIES * GROUP_PADDED], tl.float32)
    if SINKS:
        highest = tl.load(sinks + head, mask=mine, other=0.0).to(tl.float32) * 1.4426950408889634
        total += 1.0
    sums = tl.zeros([BLOCK_QUERIES * GROUP_PADDED, VALUE_DIM], tl.float32)
    table = tables + row * table_row
    if WINDOW:
        for start in tl.range(begin, tl.minimum(whole_from, end), BLOCK):
            highest, total, sums = _block(
                query, keys, values, k_page, k_token, v_page, v_token, table, start, end, lowest, places_of_queries,
                kv_head, key_dim, value_dim, scale, softcap, window, highest, total, sums,
                KEY_DIM, VALUE_DIM, EVEN, PAGE, BLOCK, True, WINDOW, SOFTCAP, PRECISION,
            )  # fmt: skip
    for start in tl.range(whole_from, whole_to, BLOCK):
        highest, total, sums = _block(
            query, keys, values, k_page, k_token, v_page, v_token, table, start, end, lowest, places_of_queries,
            kv_head, key_dim, value_dim, scale, softcap, window, highest, total, sums,
            KEY_DIM, VALUE_DIM, EVEN, PAGE, BLOCK, False, WINDOW, SOFTCAP, PRECISION,
        )  # fmt: skip
    for start in tl.range(whole_to, end, BLOCK):
        highest, total, sums = _block(
            query, keys, values, k_page, k_token, v_page, v_token, table, start, end, lowest, places_of_queries,
            kv_head, key_dim, value_dim, scale, softcap, window, highest, total, sums,
            KEY_DIM, VALUE_DIM, EVEN, PAGE, BLOCK, True, WINDOW, SOFTCAP, PRECISION,
        )  # fmt: skip
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
    scale = score_scale(rules)
    assert query.stride(2) == 1
    assert out.is_contiguous()
    wide = padded(max(layer.key_dim, layer.value_dim)) > 128 or query.dtype is torch.float32
    _prefill[tokens // block_queries + rows, kv_heads](
        query, query.stride(0), query.stride(1), layer.keys, layer.values,
        page_size * kv_heads * layer.key_dim, kv_heads * layer.key_dim,
        page_size * kv_heads * layer.value_dim, kv_heads * layer.value_dim,
        tables, tables.stride(0), ends, lengths, sinks, out, rows, scale, rules.softcap or 1.0, window or 0,
        layer.key_dim, layer.value_dim,
        KV_HEADS=kv_heads, GROUP=group, GROUP_PADDED=group_padded, KEY_DIM=padded(layer.key_dim),
        VALUE_DIM=padded(layer.value_dim), PAGE=page_size,
        EVEN=padded(layer.key_dim) == layer.key_dim and padded(layer.value_dim) == layer.value_dim, BLOCK=BLOCK_KEYS // 2 if wide else BLOCK_KEYS,
        BLOCK_QUERIES=block_queries, WINDOW=window is not None, SOFTCAP=rules.softcap is not None,
        SINKS=rules.sinks is not None, PRECISION=precision(query.dtype), num_warps=8, num_stages=2,
    )  # fmt: skip
