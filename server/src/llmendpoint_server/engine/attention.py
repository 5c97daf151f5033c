"""Attention over paged keys and values, in torch's own operators, for any device.

It is registered with transformers' `AttentionInterface`, so each attention layer of a model calls it with queries, keys
and values of one flat row of tokens `[1, heads, T, head_dim]`. A `Step` says which of those tokens belong to which
sequence; `module.layer_idx` gives the layer's pages. A causal mask is never passed: the step implies it.

Pages are stored as `[pages * kv_heads, page_size * head_dim]`: one `index_select` of whole page rows gathers a
sequence's keys in the order that a batched matmul needs, `[sequences * kv_heads, tokens, head_dim]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from transformers import AttentionInterface

from llmendpoint_server.engine.step import DecodeGroup, PrefillChunk, Step

NAME = "llmendpoint_paged"
MOST_SCORES = 2**25
"""The most scores in memory at one time, if no torch kernel avoids storing them; in float32, with one or two copies."""


class Scratch:
    """Buffers that grow and are reused. Allocating a gathered batch anew costs more in page faults than the gather
    itself (209 ms against 5 ms per step for 16 sequences of 128 tokens in 12 layers of 12 heads of 64)."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}

    def rows(self, name: str, rows: int, like: torch.Tensor) -> torch.Tensor:
        """An uninitialised `[rows, like.shape[1]]`."""
        size = rows * like.shape[1]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size or buffer.dtype != like.dtype:
            buffer = torch.empty(size + size // 4, dtype=like.dtype, device=like.device)
            self._buffers[name] = buffer
        return buffer[:size].view(rows, like.shape[1])


@dataclass(slots=True)
class LayerCache:
    """One layer's pages: keys `[pages * kv_heads, page_size * key_dim]`, values likewise."""

    keys: torch.Tensor
    values: torch.Tensor
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None

    def bytes_per_page(self, pages: int) -> int:
        return int(self.keys.nbytes + self.values.nbytes) // pages


@dataclass(slots=True)
class PagedCache:
    """All layers' pages. A layer's pages are allocated when it first writes, in the shapes of its keys and values."""

    pages: int
    page_size: int
    layers: dict[int, LayerCache] = field(default_factory=dict)
    calls: dict[int, int] = field(default_factory=dict)
    """how often each layer attended; the gate reads it"""
    scratch: Scratch = field(default_factory=Scratch)

    def layer(self, index: int, key: torch.Tensor, value: torch.Tensor, window: int | None) -> LayerCache:
        found = self.layers.get(index)
        if found is None:
            heads, key_dim, value_dim = key.shape[1], key.shape[-1], value.shape[-1]
            keys, values = (
                torch.zeros(self.pages * heads, self.page_size * dim, dtype=key.dtype, device=key.device)
                for dim in (key_dim, value_dim)
            )
            found = self.layers[index] = LayerCache(keys, values, heads, key_dim, value_dim, window)
        return found

    @property
    def bytes_per_page(self) -> int:
        return sum(layer.bytes_per_page(self.pages) for layer in self.layers.values())

    @property
    def widest_window(self) -> int | None:
        """The most keys that a query sees in any layer; None if a layer has no window."""
        windows = [layer.window for layer in self.layers.values() if layer.window is not None]
        return max(windows) if windows and len(windows) == len(self.layers) else None


_active: tuple[PagedCache, Step] | None = None


@contextmanager
def attending(cache: PagedCache, step: Step) -> Iterator[None]:
    """In this context the model's attention layers work on `cache` as `step` says. One model at a time per process."""
    global _active
    _active = (cache, step)
    try:
        yield
    finally:
        _active = None


@dataclass(frozen=True, slots=True)
class Rules:
    """What a layer needs of its attention besides causality: see transformers' eager attention functions.

    `sliding_window`: a query sees this many keys, its own included. `softcap`: scores go through `softcap * tanh(score
    / softcap)`. `sinks`: one more logit per head `[heads]`, which takes weight but has no value.
    """

    scale: float
    sliding_window: int | None
    softcap: float | None
    sinks: torch.Tensor | None

    @property
    def plain(self) -> bool:
        return self.softcap is None and self.sinks is None


def paged_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: torch.Tensor | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """The function behind the interface: `[1, heads, T, dim]` in, `[1, T, heads, value_dim]` out."""
    assert _active is not None, "the model runs outside `attending`"
    cache, step = _active
    index = cast(int, module.layer_idx)
    cache.calls[index] = cache.calls.get(index, 0) + 1
    layer = cache.layer(index, key, value, sliding_window)
    _write(layer, step, key, value)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    rules = Rules(scale, sliding_window, softcap, s_aux)
    tokens, heads = query.shape[2], query.shape[1]
    groups = step.decode_groups(sliding_window, layer.kv_heads)
    if len(groups) == 1 and not step.chunks:
        return _decode(cache, layer, groups[0], query, rules)[None], None
    out = query.new_empty(tokens, heads, layer.value_dim)
    for group in groups:
        out[group.start : group.end] = _decode(cache, layer, group, query, rules)
    for chunks in step.chunk_batches:
        _prefill(cache, layer, step, chunks, (query, key, value), rules, out)
    return out[None], None


AttentionInterface.register(NAME, paged_attention)


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
    states: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
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
        _prefill_one(cache, layer, step, chunk, states[0], rules, out)


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
