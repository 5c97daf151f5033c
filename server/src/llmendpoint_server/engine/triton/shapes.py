"""Sizes that Triton's tiles can have."""

from __future__ import annotations

import torch
import triton

SMALLEST_TILE = 16
"""Rows, columns and depth of a product of tiles."""


def padded(dim: int) -> int:
    """The size of a tile that holds `dim` numbers."""
    return max(SMALLEST_TILE, int(triton.next_power_of_2(dim)))


def heads_together(group: int) -> int:
    """Rows of a tile for the query heads of one key head."""
    return int(triton.next_power_of_2(group))


def precision(dtype: torch.dtype) -> str:
    """How products of float32 are computed: exactly, not by the ten bits of tf32."""
    return "ieee" if dtype is torch.float32 else "tf32"
