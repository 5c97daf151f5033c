"""Attention in torch's own operators, for any device: a sequence's pages are gathered into one tensor, and multiplied.

It is what the faster backends are compared with, and what serves where none of them runs.
"""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch
import torch.nn.functional as F  # noqa: N812  its usual name

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.step import DecodeGroup, PrefillChunk, Step

MOST_SCORES = 2**25
"""The most scores in memory at one time, if no torch kernel avoids storing them; in float32, with one or two copies."""


class Gathered(Backend):
    """Has `pages` of `page_size` tokens. `dtype`: of the model's activations."""

    def __init__(self, pages: int, page_size: int, device: torch.device, dtype: torch.dtype) -> None:
        self.cache = PagedCache(pages, page_size)
        self._inputs = Inputs(page_size, device)
        self._device = device
        self._dtype = dtype

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._inputs.reserve_step(rows, tokens, -(-longest // self.cache.page_size))

    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        return Step(batch, self._inputs, self._device, self._dtype, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        cache, (query, key, value) = self.cache, states
        _write(pages, step, key, value)
        tokens, heads = query.shape[2], query.shape[1]
        groups = step.decode_groups(rules.sliding_window, pages.kv_heads)
        if len(groups) == 1 and not step.chunk_batches:
            return _decode(cache, pages, groups[0], query, rules)
        out = query.new_empty(tokens, heads, pages.value_dim)
        for group in groups:
            out[group.start : group.end] = _decode(cache, pages, group, query, rules)
        for chunks in step.chunk_batches:
            _prefill(cache, pages, step, chunks, states, rules, out)
        return out


def _write(layer: LayerCache, step: Step, key: torch.Tensor, value: torch.Tensor) -> None:
    """Store the step's new keys and values, `[1, kv_heads, T, dim]`, in their slots."""
    if (opened := step.opened(layer.kv_heads)) is not None:
        layer.keys.index_fill_(0, opened, 0)
        layer.values.index_fill_(0, opened, 0)
    slots = step.slots(layer.kv_heads)
    layer.keys.view(-1, layer.key_dim).index_copy_(
        0, slots, key[0].transpose(0, 1).reshape(-1, layer.key_dim)
    )
    layer.values.view(-1, layer.value_dim).index_copy_(
        0, slots, value[0].transpose(0, 1).reshape(-1, layer.value_dim)
    )


def _gather(
    cache: PagedCache, layer: LayerCache, rows: torch.Tensor, heads: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values `[heads, tokens, dim]` of the page rows `rows`, in scratch memory."""
    keys = cache.scratch.rows("keys", rows.numel(), layer.keys)
    values = cache.scratch.rows("values", rows.numel(), layer.values)
    torch.index_select(layer.keys, 0, rows, out=keys)
    torch.index_select(layer.values, 0, rows, out=values)
    return keys.view(heads, -1, layer.key_dim), values.view(heads, -1, layer.value_dim)


def _decode(
    cache: PagedCache, layer: LayerCache, group: DecodeGroup, query: torch.Tensor, rules: Rules
) -> torch.Tensor:
    """One query row per sequence, `[sequences, heads, value_dim]`. Two batched matmuls, because SDPA's kernels are slow
    for single rows on CPU."""
    count, heads = group.end - group.start, query.shape[1]
    keys, values = _gather(cache, layer, group.rows, count * layer.kv_heads)
    rows = query[0, :, group.start : group.end].transpose(0, 1)
    rows = rows.reshape(count * layer.kv_heads, heads // layer.kv_heads, layer.key_dim)
    if rules.plain:
        scores = torch.baddbmm(group.bias, rows, keys.transpose(1, 2), alpha=rules.scale)
        weights = scores.softmax(-1)
    else:
        scores = torch.bmm(rows, keys.transpose(1, 2)).view(count, heads, 1, -1)
        bias = group.bias.view(count, layer.kv_heads, 1, -1)[:, :1]
        weights = _softmax(scores, bias, rules).view(count * layer.kv_heads, -1, scores.shape[-1])
    return torch.bmm(weights, values).view(count, heads, layer.value_dim)


def _softmax(scores: torch.Tensor, bias: torch.Tensor, rules: Rules) -> torch.Tensor:
    """Weights from raw scores `[sequences, heads, queries, keys]`; computed in float32."""
    scores = scores.float() * rules.scale
    if rules.softcap is not None:
        scores = torch.tanh(scores / rules.softcap) * rules.softcap
    scores = scores + bias
    dtype = bias.dtype
    if rules.sinks is None:
        return scores.softmax(-1).to(dtype)
    sinks = rules.sinks.float().view(1, -1, 1, 1).expand(scores.shape[0], -1, scores.shape[2], 1)
    return torch.cat([scores, sinks], -1).softmax(-1)[..., :-1].to(dtype)


def _prefill(
    cache: PagedCache,
    layer: LayerCache,
    step: Step,
    chunks: list[PrefillChunk],
    states: States,
    rules: Rules,
    out: torch.Tensor,
) -> None:
    """Prompt chunks of equal length in consecutive rows. Whole prompts are computed together, other chunks one by one."""
    first, count = chunks[0], len(chunks)
    whole = first.start == 0 and rules.plain
    if whole and (rules.sliding_window is None or first.count <= rules.sliding_window):
        begin, end = first.row, first.row + count * first.count
        q, k, v = (
            x[0, :, begin:end].reshape(x.shape[1], count, first.count, -1).transpose(0, 1) for x in states
        )  # [sequences, heads, tokens, dim]
        grouped = q.shape[1] != k.shape[1]
        result = F.scaled_dot_product_attention(
            q, k, v, is_causal=True, scale=rules.scale, enable_gqa=grouped
        )
        out[begin:end] = result.transpose(1, 2).flatten(0, 1)
        return
    for chunk in chunks:
        _prefill_one(cache, layer, step, chunk, states.query, rules, out)


def _prefill_one(
    cache: PagedCache,
    layer: LayerCache,
    step: Step,
    chunk: PrefillChunk,
    query: torch.Tensor,
    rules: Rules,
    out: torch.Tensor,
) -> None:
    """One chunk against everything before it and itself, read from its pages."""
    rows, bias = step.chunk_context(chunk, rules.sliding_window, layer.kv_heads)
    keys, values = _gather(cache, layer, rows, layer.kv_heads)
    q = query[:, :, chunk.row : chunk.row + chunk.count]
    repeat = q.shape[1] // layer.kv_heads
    if repeat > 1 and (q.is_cuda or not rules.plain):
        # CUDA's memory-efficient kernel takes a mask or grouped heads. With both, all scores would be in memory.
        keys, values = (x.repeat_interleave(repeat, 0) for x in (keys, values))
    if rules.plain:
        result = F.scaled_dot_product_attention(
            q, keys[None], values[None], attn_mask=bias, scale=rules.scale, enable_gqa=len(keys) != q.shape[1]
        )
    else:
        result = _attend_in_parts(q, keys[None], values[None], bias, rules)
    out[chunk.row : chunk.row + chunk.count] = result[0].transpose(0, 1)


def _attend_in_parts(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor, rules: Rules
) -> torch.Tensor:
    """`[1, heads, count, value_dim]`, computed for some queries at a time."""
    at_once = max(1, MOST_SCORES // (q.shape[1] * keys.shape[2]))
    parts = zip(torch.split(q, at_once, 2), torch.split(bias, at_once, 2), strict=True)
    return torch.cat([_softmax(some @ keys.transpose(2, 3), seen, rules) @ values for some, seen in parts], 2)
