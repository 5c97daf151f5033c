"""Attention on CUDA that reads pages where they lie: torch's own kernel for sequences of any lengths, with block tables.

Not run on a GPU yet: it needs torch 2.12. `choice.py` compares it with torch's operators on the device before it serves.
"""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch
from torch.nn.attention.varlen import varlen_attn

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.step import Step

PAGE_TOKENS = 256
"""Flash attention reads pages of a multiple of this many tokens."""
LONGEST_HEAD = 256
HEAD_MULTIPLE = 8
DTYPES = frozenset({torch.float16, torch.bfloat16})


class Varlen(Backend):
    """Has `pages` pages, each `[page_size, kv_heads, dim]`. A step of decodes can be captured in a graph: what it reads lies in `Inputs`,
    and its shapes depend on the number of rows only."""

    captures = True

    def __init__(self, pages: int, device: torch.device, dtype: torch.dtype) -> None:
        self.cache = PagedCache(pages, PAGE_TOKENS)
        self._inputs = Inputs(PAGE_TOKENS, device)
        self._device, self._dtype = device, dtype

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._inputs.reserve_step(rows, tokens, -(-longest // PAGE_TOKENS))

    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        return Step(batch, self._inputs, self._device, self._dtype, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        ragged = step.ragged
        query, keys, values = written(pages, self.cache.page_size, states, ragged.slots)
        before = -1 if rules.sliding_window is None else rules.sliding_window - 1  # its own key comes on top
        out = varlen_attn(
            query, keys, values,
            ragged.query_ends, ragged.key_ends, ragged.most_queries, ragged.most_keys,
            scale=rules.scale, window_size=(before, 0), enable_gqa=query.shape[1] != pages.kv_heads,
            seqused_k=ragged.key_counts, block_table=ragged.tables,
            num_splits=1,  # a row's result does not depend on the other rows
        )  # fmt: skip
        assert isinstance(out, torch.Tensor)
        return out


def written(
    layer: LayerCache, page_size: int, states: States, slots: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Store a step's keys and values in their slots. Returns queries `[T, heads, dim]`, and a layer's keys and values
    `[pages, page_size, kv_heads, dim]`."""
    query, key, value = (x[0].transpose(0, 1) for x in states)
    keys = layer.keys.view(-1, page_size, layer.kv_heads, layer.key_dim)
    values = layer.values.view(-1, page_size, layer.kv_heads, layer.value_dim)
    keys.flatten(0, 1).index_copy_(0, slots, key)
    values.flatten(0, 1).index_copy_(0, slots, value)
    return query.contiguous(), keys, values


def lacks(dtype: torch.dtype, layer: LayerCache, rules: Rules) -> str | None:
    """Why the kernel cannot serve a layer; None if it can."""
    if dtype not in DTYPES:
        return f"the kernel does not compute in {str(dtype).removeprefix('torch.')}"
    if layer.key_dim != layer.value_dim or layer.key_dim % HEAD_MULTIPLE or layer.key_dim > LONGEST_HEAD:
        return f"the kernel has no heads of {layer.key_dim} and {layer.value_dim}"
    if rules.softcap is not None:
        return "the kernel has no soft cap"
    if rules.sinks is not None:
        return "the kernel has no sinks"
    return None
