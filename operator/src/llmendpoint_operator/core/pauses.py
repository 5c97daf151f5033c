"""How long to wait before something that failed is tried again."""

from __future__ import annotations


def growing_pause(first: float, failures: int, longest: float) -> float:
    """After so many failures in a row, from 1 on: twice as long each time, and never longer than `longest`."""
    doublings = min(max(failures - 1, 0), 64)  # more of them would be no number
    return float(min(first * 2.0**doublings, longest))
