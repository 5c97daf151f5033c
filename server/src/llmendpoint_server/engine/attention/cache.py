"""The pages of all layers: where keys and values are kept.

Pages are stored as `[pages * kv_heads, page_size * head_dim]`: one `index_select` of whole page rows gathers a
sequence's keys in the order that a batched matmul needs, `[sequences * kv_heads, tokens, head_dim]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

PAGE_SIZE = 16
"""Tokens of a page. The CPU kernels are compiled for it."""


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
    """One layer's pages: keys `[pages * kv_heads, page_size * key_dim]`, values likewise. Of pages of eight bits, a scale for each
    token and head, `[pages * kv_heads, page_size]`."""

    index: int
    keys: torch.Tensor
    values: torch.Tensor
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None

    def bytes_per_page(self, pages: int) -> int:
        parts = (self.keys, self.values, self.key_scales, self.value_scales)
        return sum(part.nbytes for part in parts if part is not None) // pages

    @property
    def addresses(self) -> tuple[int, int, int, int]:
        """Of keys, values, and their scales, or 0."""
        keys, values = self.keys.data_ptr(), self.values.data_ptr()
        scales = (0 if one is None else one.data_ptr() for one in (self.key_scales, self.value_scales))
        return keys, values, *scales  # type: ignore[return-value]  # two scales


@dataclass(slots=True)
class PagedCache:
    """All layers' pages. A layer's pages are allocated when it first writes, in the shapes of its keys and values. `kept`: their
    type, of eight bits; None: that of the keys and values."""

    pages: int
    page_size: int
    kept: torch.dtype | None = None
    layers: dict[int, LayerCache] = field(default_factory=dict)
    scratch: Scratch = field(default_factory=Scratch)

    def layer(self, index: int, key: torch.Tensor, value: torch.Tensor, window: int | None) -> LayerCache:
        found = self.layers.get(index)
        if found is None:
            heads, key_dim, value_dim = key.shape[1], key.shape[-1], value.shape[-1]
            keys, values = (
                torch.zeros(
                    self.pages * heads, self.page_size * dim, dtype=self.kept or key.dtype, device=key.device
                )
                for dim in (key_dim, value_dim)
            )
            scales = [torch.zeros(self.pages * heads, self.page_size) for _ in range(2 if self.kept else 0)]
            found = LayerCache(index, keys, values, heads, key_dim, value_dim, window, *scales)
            self.layers[index] = found
        return found

    @property
    def bytes_per_page(self) -> int:
        return sum(layer.bytes_per_page(self.pages) for layer in self.layers.values())

    @property
    def widest_window(self) -> int | None:
        """The most keys that a query sees in any layer; None if a layer has no window."""
        windows = [layer.window for layer in self.layers.values() if layer.window is not None]
        return max(windows) if windows and len(windows) == len(self.layers) else None
