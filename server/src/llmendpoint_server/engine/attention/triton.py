"""Attention on CUDA by our own kernels, which read pages where they lie: windows, soft caps, sinks, and heads of any size.

Steps of decodes can be captured in graphs. `choice.py` compares it with torch's operators on the device before it serves.
"""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import PAGE_SIZE, LayerCache, PagedCache
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.step import Step
from llmendpoint_server.engine.triton import DTYPES, can_launch_ahead

try:
    from llmendpoint_server.engine.triton.decode import decode, split
    from llmendpoint_server.engine.triton.prefill import prefill
    from llmendpoint_server.engine.triton.store import store

    missing: str | None = None
except ImportError as error:
    missing = f"triton is not installed ({error})"

LONGEST_HEAD = 256


class Triton(Backend):
    """Has `pages` pages, each `[page_size, kv_heads, dim]`."""

    captures = True

    def __init__(self, pages: int, device: torch.device, dtype: torch.dtype) -> None:
        self.cache = PagedCache(pages, PAGE_SIZE)
        self._inputs = Inputs(PAGE_SIZE, device)
        self._device, self._dtype = device, dtype
        self._ahead = can_launch_ahead(device)

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._inputs.reserve_step(rows, tokens, -(-longest // PAGE_SIZE))

    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        return Step(batch, self._inputs, self._device, self._dtype, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        query, key, value = (x[0].transpose(0, 1) for x in states)
        query, key, value = (x if x.stride(2) == 1 else x.contiguous() for x in (query, key, value))
        loaded, one, tables = step.loaded, step.singles, step.loaded.tables
        store(key, value, pages, loaded.slots, self._ahead)
        out = query.new_empty(*query.shape[:2], pages.value_dim)
        if one:
            how = split(one, tables.shape[1] * PAGE_SIZE)
            decode(
                query[:one],
                pages,
                PAGE_SIZE,
                tables,
                loaded.lengths[:one],
                rules,
                out[:one],
                how,
                self._ahead,
            )
        if (tokens := len(query) - one) > 0:
            tables, ends, lengths = tables[one : len(step.rows)], loaded.ends[one:], loaded.lengths[one:]
            prefill(query, pages, PAGE_SIZE, tables, ends, lengths, rules, out, tokens)
        return out


def lacks(dtype: torch.dtype, layer: LayerCache, rules: Rules) -> str | None:
    """Why the kernels cannot serve a layer; None if they can."""
    if missing is not None:
        return missing
    if dtype not in DTYPES:
        return f"the kernels do not compute in {str(dtype).removeprefix('torch.')}"
    if max(layer.key_dim, layer.value_dim) > LONGEST_HEAD:
        return f"the kernels have no heads of {layer.key_dim} and {layer.value_dim}"
    return None
