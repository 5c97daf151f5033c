"""Attention on CPU that reads pages where they lie: the kernels of `llmendpoint_native`.

Its pages hold the same bytes as those of `Gathered`, in the order that the kernels read; server/native/kernels/attention.h has it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.engine.attention.base import Backend, Rules, States
from llmendpoint_server.engine.attention.cache import LayerCache, PagedCache
from llmendpoint_server.engine.inputs import Inputs
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.step import Step

CPU = torch.device("cpu")
_KEPT = {None: 0, torch.int8: 1, torch.float8_e4m3fn: 2}
"""`Kept` of kernels/eight_bits.h"""


@dataclass(frozen=True, slots=True)
class LayerTable:
    """Decoder layers of the same shapes as the kernel reads them: `packed` by `pack_layer`, one after another.

    `indices`: their places in the cache. `width`: between the layers of the feed-forward. Who makes it keeps the weights.
    """

    packed: bytes
    indices: tuple[int, ...]
    windows: tuple[int | None, ...]
    hidden: int
    heads: int
    kv_heads: int
    dim: int
    width: int


def pack_layer(norms: Row[int], eps: Row[float], linears: Row[tuple[int, ...]], rules: Rules) -> bytes:
    """`Layer` of kernels/layer.h. `norms`: addresses of weights in float32, before the attention, of queries, of keys, and before the
    feed-forward. `linears`: qkv, out, gate and up, down; each is `NativeLinear.packed`."""
    qkv, out, gate_up, down = linears
    addresses = (norms[0], *qkv, *norms[1:3], *out, norms[3], *gate_up, *down)
    return struct.pack(
        "29q6d", *addresses, rules.sliding_window or 0, *eps, rules.scale, rules.softcap or 0.0
    )


class InPlace(Backend):
    """Has `pages` pages, in `kept` of eight bits, or in `dtype`, that of the activations."""

    def __init__(
        self, kernels: Kernels, pages: int, dtype: torch.dtype, kept: torch.dtype | None = None
    ) -> None:
        self.cache = PagedCache(pages, kernels.functions.PAGE, kept)
        self._kept = _KEPT[kept]
        self._inputs = Inputs(kernels.functions.PAGE, CPU)
        self._dtype = dtype
        self._is_bf16 = int(dtype is torch.bfloat16)
        self._write = kernels.functions.write
        self._read = kernels.functions.attend
        self._layers = kernels.functions.layers
        self._run: tuple[LayerTable, torch.Tensor, torch.Tensor] | None = None
        """the table that was computed last, its bytes, and the addresses of its layers' pages"""

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
        keys, values, *scales = pages.addresses
        self._write(
            self._is_bf16,
            key.data_ptr(), key.stride(2), key.stride(1),
            value.data_ptr(), value.stride(2), value.stride(1),
            keys, values, layout.slots.data_ptr(), tokens, *shape, *scales, self._kept,
        )  # fmt: skip
        out = query.new_empty(tokens, heads, pages.value_dim)
        sinks = None if rules.sinks is None else rules.sinks.float().contiguous()
        self._read(
            self._is_bf16,
            query.data_ptr(), query.stride(2), query.stride(1), out.data_ptr(), keys, values,
            0 if sinks is None else sinks.data_ptr(), layout.rows.data_ptr(), layout.tables.data_ptr(),
            layout.rows.numel() // 4, heads, *shape,
            rules.sliding_window or 0, rules.scale, rules.softcap or 0.0, *scales, self._kept,
        )  # fmt: skip
        return out

    def compute_layers(
        self, step: Step, table: LayerTable, hidden: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> None:
        """Compute all layers of a table in place: `hidden` `[1, T, hidden]`, `cos` and `sin` `[1, T, rotary]`, contiguous and in the
        dtype of the pages. Raises MemoryError if there is no room for what lies between the layers."""
        if {hidden.dtype, cos.dtype, sin.dtype} != {self._dtype} or hidden.shape[-1] != table.hidden:
            raise ValueError(
                f"layers of {table.hidden} in {self._dtype} got {tuple(hidden.shape)} {hidden.dtype}"
            )
        if self._run is None or self._run[0] is not table:
            self._run = (
                table,
                torch.frombuffer(bytearray(table.packed), dtype=torch.uint8),
                self._pages(table),
            )
        _, packed, pages = self._run
        layout = step.layout
        self._layers(
            self._is_bf16, packed.data_ptr(), pages.data_ptr(), len(table.indices),
            table.hidden, table.heads, table.kv_heads, table.dim, table.width,
            hidden.data_ptr(), cos.data_ptr(), sin.data_ptr(),
            layout.rows.data_ptr(), layout.tables.data_ptr(), layout.slots.data_ptr(),
            layout.rows.numel() // 4, hidden.shape[1], cos.shape[-1], self._kept,
        )  # fmt: skip

    def _pages(self, table: LayerTable) -> torch.Tensor:
        """Addresses of the keys and values of each layer, and of their scales, `[layers, 4]`."""
        like = torch.empty(1, table.kv_heads, 0, table.dim, dtype=self._dtype)
        found = [
            self.cache.layer(index, like, like, window)
            for index, window in zip(table.indices, table.windows, strict=True)
        ]
        for pages in found:
            if (pages.kv_heads, pages.key_dim, pages.value_dim) != (table.kv_heads, table.dim, table.dim):
                raise ValueError(
                    f"layers with keys of {table.kv_heads} x {table.dim} have pages of another shape"
                )
        return torch.tensor([pages.addresses for pages in found])


def reads(kernels: Kernels, layer: LayerCache) -> bool:
    """Whether the kernels can read pages of this shape."""
    return layer.key_dim % 2 == 0 and layer.value_dim % kernels.lanes == 0
