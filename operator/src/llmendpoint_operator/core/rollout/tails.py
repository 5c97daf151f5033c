"""How many requests were slower than each bound of a histogram, and what follows about a 95th percentile.

A histogram says nothing of what lies between two of its bounds. So a limit is tested at a bound: at the next one above the
limit that it is broken, at the next one below that it is kept. A bound at the limit serves for both.
"""

from __future__ import annotations

import math
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from llmendpoint_verdicts.shares import Share

from .by_replica import NO_REPLICAS, Replicas
from .cells import Scales
from .histograms import Histogram, quantile

P95 = 0.95
SLOWEST = 1 - P95
"""Share of the requests that may be slower than a limit of a 95th percentile."""
ROUNDING = 1e-9
"""A bound that equals a limit is at it, whatever binary fractions make of 0.1 x 3."""
KEPT_BOUNDS = 16
"""That a status holds: those nearest to the 95th percentile."""
LEAST, MOST = 0.02, 0.1
"""Of blue's requests are slower than a bound at which green is compared with it."""


@dataclass(frozen=True, slots=True)
class Tail:
    """`bounds` in seconds, rising, without +Inf; `slower`: requests that took longer than each, falling. How much they
    clump is in `clumpings`, by bound, or follows from `cells` and `replicas`. `drift`: as in Figures."""

    requests: float
    bounds: tuple[float, ...]
    slower: tuple[float, ...]
    clumpings: tuple[float, ...] = ()
    cells: Scales = field(default_factory=Scales)
    drift: float = 1.0
    replicas: Replicas = NO_REPLICAS

    @property
    def p95(self) -> float | None:
        """As PromQL's histogram_quantile, in seconds."""
        return quantile(P95, self._histogram())

    def at(self, index: int) -> Share:
        """The share that was slower than one of the bounds."""
        if self.clumpings:
            return Share(self.requests, self.slower[index], self.clumpings[index], self.drift)
        bound = self.bounds[index]
        effect = max(self.cells.clumping(bound), self.replicas.clumping(bound))
        return Share(self.requests, self.slower[index], effect, self.drift)

    def from_above(self, seconds: float) -> int | None:
        """The lowest bound that is not below `seconds`; None where there is none."""
        index = bisect_left(self.bounds, seconds * (1 - ROUNDING))
        return index if index < len(self.bounds) else None

    def from_below(self, seconds: float) -> int | None:
        """The highest bound that is not above `seconds`; None where there is none."""
        index = bisect_right(self.bounds, seconds * (1 + ROUNDING)) - 1
        return index if index >= 0 else None

    def nearest(self, limits: Sequence[float] = ()) -> Tail:
        """With the bounds around each limit in seconds, and those nearest to the 95th percentile: what a status holds of it."""
        middle = next(
            (i for i, slower in enumerate(self.slower) if slower <= SLOWEST * self.requests), len(self.bounds)
        )
        around = {place for one in limits for place in (self.from_above(one), self.from_below(one))}
        wanted = [place for place in around if place is not None]
        others = sorted(range(len(self.bounds)), key=lambda place: (abs(place - middle), place))
        kept = sorted([*wanted, *(place for place in others if place not in around)][:KEPT_BOUNDS])
        shares = [self.at(index) for index in kept]
        bounds = tuple(self.bounds[index] for index in kept)
        hits, clumpings = tuple(s.hits for s in shares), tuple(s.clumping for s in shares)
        return Tail(self.requests, bounds, hits, clumpings, drift=self.drift)

    def _histogram(self) -> Histogram:
        counts = [self.requests - slower for slower in self.slower]
        return Histogram((*self.bounds, math.inf), (*counts, self.requests))


def make_tail(histogram: Histogram, cells: Scales, replicas: Replicas = NO_REPLICAS) -> Tail | None:
    """None without observations. `cells`, `replicas`: of the same requests, or of more. Whatever an engine reports, no more
    requests are slower than a bound than are slower than the one below."""
    count, bounds = histogram.count, histogram.bounds[:-1]
    if not bounds or count <= 0:
        return None
    slower = histogram.above
    if slower[0] > count or slower[-1] < 0 or list(slower) != sorted(slower, reverse=True):
        slower = tuple(accumulate((max(0.0, one) for one in slower), min, initial=count))[1:]
    return Tail(count, bounds, slower, cells=cells, replicas=replicas)


@dataclass(frozen=True, slots=True)
class Pair:
    """A bound of green's and one of blue's, by index: green's is at least the allowed ratio times blue's. `increase`: by how
    much green's share at its bound may be above blue's at the other, as long as the 95th percentile keeps the ratio."""

    green: int
    blue: int
    increase: float = 0.0


def comparable(green: Tail, blue: Tail, ratio: float) -> Pair | None:
    """Where to compare: of the bounds near blue's 95th percentile the pair that fits the ratio best. Where none is near,
    the lowest bound that all but a few of blue's requests kept: SLOWEST of green's may take longer than `ratio` times that.
    None where green's histogram has no bound so high."""
    if blue.requests <= 0:
        return None
    rates = [slower / blue.requests for slower in blue.slower]
    first, last = (bisect_left(rates, -most, key=operator.neg) for most in (MOST, LEAST))
    near = [
        (high, low)
        for low in range(first, last)
        if (high := green.from_above(blue.bounds[low] * ratio)) is not None
    ]

    def misfit(pair: tuple[int, int]) -> tuple[float, float]:
        tested = green.bounds[pair[0]] / blue.bounds[pair[1]] / ratio
        return round(tested, 3), abs(math.log(rates[pair[1]] / SLOWEST))

    if near:
        return Pair(*min(near, key=misfit))
    high = green.from_above(blue.bounds[last] * ratio) if last < len(rates) else None
    return None if high is None else Pair(high, last, increase=SLOWEST)
