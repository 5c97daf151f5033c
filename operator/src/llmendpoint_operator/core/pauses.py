"""How long to wait before a failed attempt is repeated."""

from __future__ import annotations


def growing_pause(first: float, failures: int, longest: float) -> float:
    """Seconds to wait after that many consecutive failures (at least 1): doubled each time, at most
    `longest`."""
    doublings = min(max(failures - 1, 0), 64)  # a float cannot hold arbitrarily many
    return float(min(first * 2.0**doublings, longest))
