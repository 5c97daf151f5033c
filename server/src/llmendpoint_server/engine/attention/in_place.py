"""Attention on CPU that reads pages where they lie: the kernels of `llmendpoint_native`.

Its pages hold the same bytes as those of `Gathered`, in the order that the kernels read; server/native/kernels/attention.h has it.
"""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.step import Step

CPU = torch.device("cpu")


class InPlace(Backend):
    """Has `pages` pages."""

    def __init__(self, kernels: Kernels, pages: int, dtype: torch.dtype) -> None:
        self.cache = PagedCache(pages, kernels.functions.PAGE)
        self._inputs = Inputs(kernels.functions.PAGE, CPU)
        self._dtype = dtype
        self._is_bf16 = int(dtype is torch.bfloat16)
        self._write = kernels.functions.write
        self._read = kernels.functions.attend

    def reserve(self, rows: int, tokens: int, longest: int) -> None:
        self._inputs.reserve_step(rows, tokens, -(-longest // self.cache.page_size))

    def prepare(self, batch: Batch, padding: Row[Scheduled] = ()) -> Step:
        return Step(batch, self._inputs, CPU, self._dtype, padding)

    def compute(self, step: Step, pages: LayerCache, states: States, rules: Rules) -> torch.Tensor:
        query, key, value = (x if x.stride(3) == 1 else x.contiguous() for x in states)
        layout = step.layout
        heads, tokens = query.shape[1], query.shape[2]
        shape = pages.kv_heads, pages.key_dim, pages.value_dim
        if (key.shape[1], key.shape[3], value.shape[3]) != shape or {query.dtype, key.dtype, value.dtype} != {
            self._dtype
        }:
            raise ValueError(
                f"layer {pages.index} has pages of {shape} in {self._dtype}, and got {tuple(key.shape)} {key.dtype}"
            )
        keys, values = pages.keys.data_ptr(), pages.values.data_ptr()
        self._write(
            self._is_bf16,
            key.data_ptr(), key.stride(2), key.stride(1),
            value.data_ptr(), value.stride(2), value.stride(1),
            keys, values, layout.slots.data_ptr(), tokens, *shape,
        )  # fmt: skip
        out = query.new_empty(tokens, heads, pages.value_dim)
        sinks = None if rules.sinks is None else rules.sinks.float().contiguous()
        self._read(
            self._is_bf16,
            query.data_ptr(), query.stride(2), query.stride(1), out.data_ptr(), keys, values,
            0 if sinks is None else sinks.data_ptr(), layout.rows.data_ptr(), layout.tables.data_ptr(),
            layout.rows.numel() // 4, heads, *shape,
            rules.sliding_window or 0, rules.scale, rules.softcap or 0.0,
        )  # fmt: skip
        return out


def reads(kernels: Kernels, layer: LayerCache) -> bool:
    """Whether the kernels can read pages of this shape."""
    return layer.key_dim % 2 == 0 and layer.value_dim % kernels.lanes == 0
