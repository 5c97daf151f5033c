"""Attention on CUDA by FlashInfer, which has what torch's kernel lacks: scores with a soft cap, and pages of 16 tokens.

It is used only if it is installed (`llmendpoint-server[flashinfer]`). Not run on a GPU yet. `choice.py` compares it with torch's operators
on the device before it serves. Its steps are not captured in graphs: it plans each step on the host.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass, field
from typing import Any

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.sequence import GONE
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import PAGE_SIZE, LayerCache, PagedCache
from llmendpoint_server.engine.attention.varlen import DTYPES, written
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.step import Step

try:
    import flashinfer as library
except ImportError:
    library = None

HEADS = frozenset({64, 128, 256})
WORKSPACE = 128 * 2**20
"""Bytes; FlashInfer's documentation recommends so many."""


@dataclass(slots=True)
class _Planned:
    """The step that is planned, its rows as FlashInfer wants them, and the kinds of layers it is planned for."""

    step: Step
    rows: tuple[torch.Tensor, ...]
    kinds: set[tuple[object, ...]] = field(default_factory=set)


class FlashInfer(Backend):
    """Has `pages` pages, each `[page_size, kv_heads, dim]`."""

    def __init__(self, pages: int, device: torch.device, dtype: torch.dtype) -> None:
        self.cache = PagedCache(pages, PAGE_SIZE)
        self._inputs = Inputs(PAGE_SIZE, device)
        self._device, self._dtype = device, dtype
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device=device)
        self._wrappers: dict[tuple[object, ...], Any] = {}
        self._planned: _Planned | None = None

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._inputs.reserve_step(rows, tokens, -(-longest // PAGE_SIZE))

    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        return Step(batch, self._inputs, self._device, self._dtype, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        query, keys, values = written(pages, PAGE_SIZE, states, step.loaded.slots)
        wrapper = self._wrapper(step, pages, query.shape[1], rules)
        out: torch.Tensor = wrapper.run(query, (keys, values))
        return out

    def _wrapper(self, step: Step, pages: LayerCache, heads: int, rules: Rules) -> Any:
        """Planned for the step; once for all layers of a kind."""
        if self._planned is None or self._planned.step is not step:
            self._planned = _Planned(step, _paged_rows(step.rows, self._device))
        kind = heads, pages.kv_heads, pages.key_dim, rules.scale, rules.sliding_window, rules.softcap
        if kind not in self._wrappers:
            self._wrappers[kind] = library.BatchPrefillWithPagedKVCacheWrapper(self._workspace, "NHD")
        wrapper = self._wrappers[kind]
        if kind not in self._planned.kinds:
            self._planned.kinds.add(kind)
            wrapper.plan(
                *self._planned.rows, heads, pages.kv_heads, pages.key_dim, PAGE_SIZE,
                causal=True, sm_scale=rules.scale, logits_soft_cap=rules.softcap or 0.0,
                window_left=-1 if rules.sliding_window is None else rules.sliding_window - 1,
                q_data_type=self._dtype, kv_data_type=self._dtype,
            )  # fmt: skip
        return wrapper


def _paged_rows(rows: Row[Scheduled], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Int32: the ends of each row's queries and of its pages, both from 0, the pages, and the tokens in each row's last page. Only the
    pages are on the device."""
    query_ends, page_ends, pages, last = [0], [0], [], []
    for row in rows:
        end, table = row.start + row.count, row.sequence.table
        used = table[: -(-end // PAGE_SIZE)]
        # What a window has passed is not seen; a page of the sequence's own stands for it.
        pages += [used[-1] if page == GONE else page for page in used]
        query_ends.append(query_ends[-1] + row.count)
        page_ends.append(len(pages))
        last.append((end - 1) % PAGE_SIZE + 1)
    on_host = [torch.tensor(numbers, dtype=torch.int32) for numbers in (query_ends, page_ends, pages, last)]
    on_host[2] = on_host[2].to(device)
    return tuple(on_host)


def lacks(dtype: torch.dtype, layer: LayerCache, rules: Rules) -> str | None:
    """Why it cannot serve a layer; None if it can."""
    if library is None:
        return "flashinfer is not installed"
    if dtype not in DTYPES:
        return f"it does not compute in {str(dtype).removeprefix('torch.')}"
    if layer.key_dim != layer.value_dim or layer.key_dim not in HEADS:
        return f"it has no heads of {layer.key_dim} and {layer.value_dim}"
    return None if rules.sinks is None else "sinks are not used with it"
