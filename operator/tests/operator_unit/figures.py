"""Figures of a revision whose latencies have a stated 95th percentile, for tests of verdicts."""

from __future__ import annotations

from typing import Any

from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.tails import Tail

BOUNDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0)


def tail(p95: float, requests: int) -> Tail:
    """An exponential distribution; the 95th percentile is one of the bounds."""
    bounds = tuple(sorted({*BOUNDS, p95}))
    return Tail(
        requests, bounds, tuple(requests * 0.05 ** (bound / p95) for bound in bounds), (1.0,) * len(bounds)
    )


def figures(
    requests: int = 0,
    errors: int = 0,
    ttft: float | None = None,
    itl: float | None = None,
    e2e: float | None = None,
    **more: Any,
) -> Figures:
    """Latencies are 95th percentiles in seconds."""
    tails = {
        name: None if p95 is None else tail(p95, requests)
        for name, p95 in (("ttft", ttft), ("itl", itl), ("e2e", e2e))
    }
    return Figures(requests, errors, **tails, **more)
