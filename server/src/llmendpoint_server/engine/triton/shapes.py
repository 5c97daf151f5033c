"""Sizes that Triton's tiles can have, and how its kernels are launched."""

from __future__ import annotations

from typing import Any

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


def launched(ahead: bool) -> dict[str, Any]:
    """Options of a kernel's launch. `ahead`: it begins before the kernel before it has ended, and waits for that one where it reads what that one
    writes; a device of compute capability 9 or later can do so."""
    return {"launch_pdl": True} if ahead else {}
