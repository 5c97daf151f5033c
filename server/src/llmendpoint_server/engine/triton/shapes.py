"""Sizes that Triton's tiles can have, and how its kernels are launched."""

from __future__ import annotations

import math
from typing import Any

import torch
import triton

from llmendpoint_server.engine.attention.base import Rules

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


def score_scale(rules: Rules) -> float:
    """What the kernels multiply scores with: they are powers of 2 from then on, or after the cap if there is one."""
    return rules.scale if rules.softcap is not None else rules.scale * math.log2(math.e)


def launched(ahead: bool) -> dict[str, Any]:
    """Options of a kernel's launch. `ahead`: it begins before the kernel before it has ended, and waits for that one where it reads what that one
    writes; a device of compute capability 9 or later can do so."""
    return {"launch_pdl": True} if ahead else {}
