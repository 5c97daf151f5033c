"""Who judges a rollout: an interface, and the rules of others, written anew from their documentation.

Each is asked every LOOK_S seconds with the tracks of both revisions since its window began (a canary's step, or the time
after a switch), and reads them up to that moment only. Every rule is given the same limits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tests.bench.verdicts.settings import Limits
from tests.bench.verdicts.streams import EDGES, Ints, Tally, Track

LOOK_S = 2
"""The operator's sampling period, in seconds."""
ROUNDING = 1e-9


class Answer(StrEnum):
    """Of one look."""

    WAIT = "Wait"
    GOOD = "Good"
    BAD = "Bad"


class Rule(Protocol):
    """Judges one rollout, and is not used again."""

    def before(self, blue: Track, rest: Sequence[Tally] = ()) -> None:
        """What the old revision did until the switch, and in each ten minutes of the hours before that."""

    def begin(self) -> None:
        """A window begins."""

    def look(self, at: int, green: Track, blue: Track) -> Answer:
        """`at` seconds after the window began."""


def quantile(q: float, within: Ints) -> float | None:
    """PromQL's `histogram_quantile` over EDGES, in seconds; None without observations."""
    count = int(within[-1])
    if count == 0:
        return None
    index = int((within >= q * count).argmax())
    if index == len(EDGES) - 1:
        return EDGES[-2]
    lower, below = (EDGES[index - 1], int(within[index - 1])) if index else (0.0, 0)
    return lower + (EDGES[index] - lower) * (q * count - below) / (int(within[index]) - below)


def kept(limits: Limits, green: Tally, before: Tally | None) -> Iterator[tuple[str, bool | None]]:
    """Each limit's name, and whether it is kept; None where there is no figure. Limits relative to the old revision are
    left out without one (`before`)."""
    share = green.failed / green.requests if green.requests else None
    yield "errors", None if share is None else share <= limits.errors + ROUNDING
    if limits.increase is not None and before is not None and before.requests:
        allowed = before.failed / before.requests + limits.increase
        yield "increase", None if share is None else share <= allowed + ROUNDING
    p95 = quantile(0.95, green.ttft)
    if limits.ttft_s is not None:
        yield "seconds", None if p95 is None else p95 <= limits.ttft_s
    old = quantile(0.95, before.ttft) if before is not None else None
    if limits.ttft_ratio is not None and old is not None:
        yield "ratio", None if p95 is None else p95 <= old * limits.ttft_ratio


@dataclass
class CumulativeShare:
    """A limit on the figures since the window began, at every look from `min_requests` on, and the first one above a
    limit decides: what this product did until it tested sequentially."""

    limits: Limits
    _before: Tally | None = None

    def before(self, blue: Track, rest: Sequence[Tally] = ()) -> None:
        tally = blue.between(0, blue.seconds)
        self._before = tally if tally.requests >= self.limits.min_requests else None

    def begin(self) -> None:
        pass

    def look(self, at: int, green: Track, blue: Track) -> Answer:
        tally = green.between(0, at)
        if tally.requests < self.limits.min_requests:
            return Answer.WAIT
        found = [whether for _, whether in kept(self.limits, tally, self._before)]
        if False in found:
            return Answer.BAD
        return Answer.WAIT if None in found or at < self.limits.duration else Answer.GOOD


@dataclass
class ArgoCounts:
    """Argo Rollouts: an AnalysisRun of each step, a metric for each limit.

    Every `interval` a metric is measured over the interval before (a query with `[60s]`); its `initialDelay` is one
    interval, so that there is something to measure. Only a `successCondition` is given, so a measurement that does not
    meet it has failed, NaN (no requests) included. A metric fails when *more* than `failureLimit` of its measurements
    have failed, counted over the whole run and not in a row (default 0: the first failure); it succeeds after `count`
    measurements. One failed metric fails the run, and the rollout is aborted. `inconclusiveLimit` (default 0) is about
    measurements that meet neither of two conditions, `consecutiveErrorLimit` (default 4) about queries that could not be
    made: there are none of either here. `count` and `interval` have no default and are the benchmark's choice.

    Sources: https://argo-rollouts.readthedocs.io/en/stable/features/analysis/ ("Failure Conditions and Failure Limit",
    "Handling Metric Results"); github.com/argoproj/argo-rollouts at 9f8d111: analysis/analysis.go
    (assessMetricFailureInconclusiveOrError: `failed > failureLimit`), utils/evaluate/evaluate.go,
    utils/defaults/defaults.go, pkg/apis/rollouts/v1alpha1/analysis_types.go.
    """

    limits: Limits
    interval: int = 60
    count: int = 5
    failure_limit: int = 0
    _before: Tally | None = None
    _failures: Counter[str] = field(default_factory=Counter)

    def before(self, blue: Track, rest: Sequence[Tally] = ()) -> None:
        self._before = blue.between(0, blue.seconds)

    def begin(self) -> None:
        self._failures.clear()

    def look(self, at: int, green: Track, blue: Track) -> Answer:
        if at % self.interval:
            return Answer.WAIT
        for metric, whether in kept(self.limits, green.between(at - self.interval, at), self._before):
            self._failures[metric] += whether is not True
        if any(failed > self.failure_limit for failed in self._failures.values()):
            return Answer.BAD
        return Answer.GOOD if at >= self.count * self.interval else Answer.WAIT


@dataclass
class OmeLimit:
    """OME: `analysis` of each canary step.

    Every `interval`, the first time after `initialDelay`, all queries of the step are judged together: one broken
    threshold fails the sample; none broken and one without a number makes it inconclusive, which holds and never counts
    (`onInconclusive: Hold`, the default); else it passes. The canary rolls back when `failureLimit` samples of this step
    have failed; a pass does not set the count back. The first pass after the bake (`pause.duration`) advances the step.
    `failureLimit` and `interval` have no default: all five figures are those of its documentation's example, the queries'
    range (`[5m]`) among them. A range longer than the step holds the step alone.

    Sources: github.com/ome-projects/ome-docs at 7f641a3, src/lib/content/reference/rollouts/canary-analysis.md ("How a sample is
    judged"); github.com/ome-projects/ome (sgl-project/ome until v0.1.5, which had no analysis yet), from v1.3 on:
    pkg/apis/ome/v1beta1/rollout_types.go (RolloutAnalysis) at 227e486.
    """

    limits: Limits
    interval: int = 60
    initial_delay: int = 120
    failure_limit: int = 3
    bake: int = 600
    range: int = 300
    _before: Tally | None = None
    _failed: int = 0

    def before(self, blue: Track, rest: Sequence[Tally] = ()) -> None:
        self._before = blue.between(0, blue.seconds)

    def begin(self) -> None:
        self._failed = 0

    def look(self, at: int, green: Track, blue: Track) -> Answer:
        if at < self.initial_delay or (at - self.initial_delay) % self.interval:
            return Answer.WAIT
        tally = green.between(max(0, at - self.range), at)
        found = [whether for _, whether in kept(self.limits, tally, self._before)]
        if False in found:
            self._failed += 1
            return Answer.BAD if self._failed >= self.failure_limit else Answer.WAIT
        return Answer.GOOD if None not in found and at >= self.bake else Answer.WAIT
