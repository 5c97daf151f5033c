"""Prometheus histograms: differences, sums and quantiles.

Quantiles are those of PromQL's `histogram_quantile`: linear within the bucket that contains the rank, from 0
in the first bucket. A rank in the last bucket (+Inf) gives that bucket's lower bound.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import add, sub


@dataclass(frozen=True, slots=True)
class Histogram:
    """`bounds`: upper bounds (`le`, in the metric's unit), rising. `counts`: of the observations up to each bound; +Inf
    counts all. What is computed from two readings shares the bounds of the first, so that they are kept once."""

    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @classmethod
    def of(cls, buckets: Mapping[float, float]) -> Histogram:
        """From counts by bound, in any order."""
        bounds = _once(tuple(sorted(buckets)))
        return cls(bounds, tuple([buckets[bound] for bound in bounds]))

    @property
    def count(self) -> float:
        """The number of all observations."""
        return self.counts[-1] if self.bounds and self.bounds[-1] == math.inf else 0.0

    @property
    def above(self) -> tuple[float, ...]:
        """The number of observations above each bound but +Inf."""
        count = self.count
        return tuple([count - below for below in self.counts[:-1]])


@lru_cache(maxsize=256)
def _once(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """The same object for the same bounds: the pods of an engine have the same ones, and a reading of each pod is kept."""
    return bounds


def since(before: Histogram, now: Histogram) -> Histogram:
    """The observations between two readings of one process's histogram. If a count fell or a bound is
    missing, the process has restarted, and the whole second reading is new."""
    if not before.bounds:
        return now
    if before.bounds == now.bounds:
        bounds, old = before.bounds, before.counts
    elif set(before.bounds) < set(now.bounds):
        bounds, old = now.bounds, _counts_at(before, now.bounds)
    else:
        return now
    new = tuple(map(sub, now.counts, old))
    return now if min(new) < 0 else Histogram(bounds, new)


def together(one: Histogram, other: Histogram) -> Histogram:
    """The sum. A histogram that lacks a bound counts there what it has at its next lower bound, so that the
    sum never falls from one bound to the next."""
    if one.bounds == other.bounds:
        return Histogram(one.bounds, tuple(map(add, one.counts, other.counts)))
    bounds = tuple(sorted({*one.bounds, *other.bounds}))
    return Histogram(bounds, tuple(map(add, _counts_at(one, bounds), _counts_at(other, bounds))))


def quantile(q: float, histogram: Histogram) -> float | None:
    """The value below which the share `q` (0..1) of the observations lies. None without observations, without
    the bucket +Inf, or with that bucket alone, as in Prometheus. No count may be less than that of a lower bound."""
    bounds, counts = histogram.bounds, histogram.counts
    if len(bounds) < 2 or histogram.count <= 0:
        return None
    rank = q * histogram.count
    index = bisect_left(counts, rank, hi=len(bounds) - 1)
    if index == len(bounds) - 1:
        return bounds[-2]
    if index == 0:
        lower, below = (0.0, 0.0) if bounds[0] > 0 else (bounds[0], 0.0)
    else:
        lower, below = bounds[index - 1], counts[index - 1]
    inside = counts[index] - below
    return bounds[index] if inside <= 0 else lower + (bounds[index] - lower) * (rank - below) / inside


def _counts_at(histogram: Histogram, bounds: tuple[float, ...]) -> tuple[float, ...]:
    counts = (0.0, *histogram.counts)
    return tuple([counts[bisect_right(histogram.bounds, bound)] for bound in bounds])
