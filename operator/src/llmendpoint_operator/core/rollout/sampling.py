"""How often the figures of a rollout are read."""

from __future__ import annotations

from llmendpoint_verdicts.shares import CELL_REQUESTS

from .evidence import Figures

SAMPLE_S = 2.0
EARLY_SAMPLE_S, EARLY_S = 1.0, 20.0
"""Seconds between two samples at the beginning of a window, and how long that is: a bad revision is to be seen soon."""
SHORTEST_S = 0.2
"""Between two early samples of the gateways. Only cells of requests tell failures one by one from a clump, so at first each
sample should be a cell, and no more than that."""
SAMPLES_PER_S = 50.0
"""Of all endpoints together, in their early seconds; where there are so many that each has one every SAMPLE_S, more."""


def next_sample(watched: float, green: Figures | None, endpoints: int) -> float:
    """Seconds until the next one, `watched` seconds after a window began. `green`: its figures so far; `endpoints`: how many
    are measured at once."""
    if watched >= EARLY_S:
        return SAMPLE_S
    least = min(SAMPLE_S, max(SHORTEST_S, endpoints / SAMPLES_PER_S))
    if green is None or not green.requests or not green.seconds:
        return max(least, min(EARLY_SAMPLE_S, watched))
    return max(least, min(EARLY_SAMPLE_S, CELL_REQUESTS * green.seconds / green.requests))
