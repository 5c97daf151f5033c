"""Prometheus histograms: differences, sums and quantiles.

Quantiles are those of PromQL's `histogram_quantile`: linear within the bucket that contains the rank, from 0
in the first bucket. A rank in the last bucket (+Inf) gives that bucket's lower bound.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Histogram:
    """Cumulative counts by upper bound (`le`, in the metric's unit); +Inf counts all observations."""

    buckets: Mapping[float, float] = field(default_factory=dict)

    @property
    def count(self) -> float:
        """The number of all observations."""
        return self.buckets.get(math.inf, 0.0)


def since(before: Histogram, now: Histogram) -> Histogram:
    """The observations between two readings of one process's histogram. If a count fell or a bound is
    missing, the process has restarted, and the whole second reading is new."""
    if before.buckets.keys() - now.buckets.keys():
        return now
    if any(now.buckets[bound] < count for bound, count in before.buckets.items()):
        return now
    return Histogram({bound: count - before.buckets.get(bound, 0.0) for bound, count in now.buckets.items()})


def together(histograms: Iterable[Histogram]) -> Histogram:
    """The sum. A histogram that lacks a bound counts there what it has at its next lower bound, so that the
    sum never falls from one bound to the next."""
    parts = [histogram for histogram in histograms if histogram.buckets]
    if all(part.buckets.keys() == parts[0].buckets.keys() for part in parts):
        return Histogram(
            {
                bound: sum(part.buckets[bound] for part in parts)
                for bound in (parts[0].buckets if parts else ())
            }
        )
    bounds = sorted({bound for part in parts for bound in part.buckets})
    return Histogram({bound: sum(_count_at(part, bound) for part in parts) for bound in bounds})


def quantile(q: float, histogram: Histogram) -> float | None:
    """The value below which the share `q` (0..1) of the observations lies. None without observations, without
    the bucket +Inf, or with that bucket alone, as in Prometheus."""
    bounds = sorted(histogram.buckets)
    if len(bounds) < 2 or bounds[-1] != math.inf or histogram.count <= 0:
        return None
    counts = [histogram.buckets[bound] for bound in bounds]
    rank = q * histogram.count
    index = next((i for i, count in enumerate(counts[:-1]) if count >= rank), len(bounds) - 1)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0:
        lower, below = (0.0, 0.0) if bounds[0] > 0 else (bounds[0], 0.0)
    else:
        lower, below = bounds[index - 1], counts[index - 1]
    inside = counts[index] - below
    return bounds[index] if inside <= 0 else lower + (bounds[index] - lower) * (rank - below) / inside


def _count_at(histogram: Histogram, bound: float) -> float:
    bounds = sorted(histogram.buckets)
    position = bisect_right(bounds, bound)
    return histogram.buckets[bounds[position - 1]] if position else 0.0
