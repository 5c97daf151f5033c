"""The histograms of the engine's metrics page, and their bounds."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

FINE = (1, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.7, 3, 3.3, 3.6, 4, 4.4, 5, 5.5, 6, 6.6, 7.5, 8, 9)  # fmt: skip
COARSE = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
"""Bounds of one decade. A rollout compares two revisions at bounds, so it sees no change that is smaller than the step
between two of them: about 10 %, and 20 to 33 %."""
ROUGH = (1, 2, 5)
"""For what only people look at."""


def decades(series: tuple[float, ...], low: int, high: int) -> tuple[float, ...]:
    """Bounds from 10**low to 10**high."""
    bounds = [round(digits * 10.0**power, 6) for power in range(low, high) for digits in series]
    return (*bounds, 10.0**high)


FIRST_TOKEN_BUCKETS = decades(FINE, -3, 2)
TOKEN_BUCKETS = decades(COARSE, -3, 1)
REQUEST_BUCKETS = (0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960)
PHASE_BUCKETS = decades(ROUGH, -3, 3)
LENGTH_BUCKETS = decades(ROUGH, 0, 6)
ANSWERS_BUCKETS = (1, 2, 5, 10, 20)


def histogram(
    name: str, text: str, model: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Metric:
    """`counts`: of each bucket alone, the last one for what is above all bounds. `total`: the sum of what was observed."""
    shown = map(floatToGoString, (*bounds, math.inf))
    family = HistogramMetricFamily(name, text, labels=["model_name"])
    family.add_metric([model], list(zip(shown, accumulate(counts), strict=True)), total)
    return family


class Distribution(Collector):
    """A histogram. prometheus_client's own looks at each bound, under locks: for a token that costs more than all else
    that is done for it."""

    def __init__(self, name: str, text: str, model: str, bounds: tuple[float, ...]) -> None:
        self._name, self._text, self._model, self._bounds = name, text, model, bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """The same value, so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterable[Metric]:
        yield histogram(self._name, self._text, self._model, self._bounds, self._counts, self._sum)
