"""Counters read again and again from gateways and engines, made into figures of one revision over one window.

A source that is seen for the first time gives its reading as the start: what it counted before is not known to lie in
the window. After that every reading adds what came since, also across a restart of the source.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from llmendpoint_verdicts.shares import CELL_REQUESTS

from .cells import Scales
from .evidence import Figures
from .histograms import Histogram, since, together
from .tails import Tail, make_tail

KEPT_MARKS = 10
"""Moments at which `recent` may begin; each holds a copy of the histograms that changed."""
NOTHING = Histogram()
NO_CELLS = Scales()
FAILED = 0.0
"""What is counted in the cells of requests; in those of a latency it is the bounds."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that ended, and those of them that failed."""

    requests: float = 0.0
    errors: float = 0.0


@dataclass(frozen=True, slots=True)
class Latencies:
    """Histograms in seconds: time to first token, between two tokens, from arrival to the last token."""

    ttft: Histogram = NOTHING
    itl: Histogram = NOTHING
    e2e: Histogram = NOTHING


@dataclass(frozen=True, slots=True)
class _Total:
    """All that was measured of one revision, and what of it came since the window began, cut into cells: of requests, and of
    each latency."""

    counts: Counts = Counts()
    latencies: Latencies = Latencies()
    cells: Mapping[str, Scales] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Mark:
    """The totals at a moment, in monotonic seconds. `heard`: how often a gateway had answered."""

    at: float
    totals: Mapping[str, _Total]
    heard: int = 0
    gateways: bool = False


class Measurements:
    """Of one endpoint. Times are monotonic seconds, given by the caller."""

    def __init__(self, recent_seconds: float) -> None:
        self._recent_seconds = recent_seconds
        self._totals: dict[str, _Total] = {}
        self._cell_starts: dict[tuple[str, str], tuple[float, Mapping[float, float]]] = {}
        self._gateways: dict[str, tuple[str, Mapping[str, Counts]]] = {}
        self._heard = 0
        self._engines: dict[str, Latencies] = {}
        self._window: _Mark | None = None
        self._latest: _Mark | None = None
        self._history: deque[_Mark] = deque()

    def add_gateway(self, gateway: str, instance: str, counts: Mapping[str, Counts]) -> None:
        """One gateway's counters by revision; `instance` is new when they began anew."""
        known = self._gateways.get(gateway)
        self._gateways[gateway] = (instance, counts)
        self._heard += 1
        if known is None:
            return
        for revision, now in counts.items():
            before = known[1].get(revision, Counts()) if known[0] == instance else Counts()
            fell = now.requests < before.requests or now.errors < before.errors
            start = Counts() if fell else before
            self._add(revision, Counts(now.requests - start.requests, now.errors - start.errors), Latencies())

    def add_engine(self, pod: str, revision: str, now: Latencies) -> None:
        """One pod's histograms; `pod` is unique among all pods, as its uid is."""
        before = self._engines.get(pod)
        self._engines[pod] = now
        if before is not None:
            self._add(revision, Counts(), Latencies(
                since(before.ttft, now.ttft), since(before.itl, now.itl), since(before.e2e, now.e2e)
            ))  # fmt: skip

    def sampled(self, now: float, gateways: bool = False) -> None:
        """All sources have been read: what `recent` may begin at. `gateways`: whether there are any, answering or not."""
        for revision in self._totals:
            self._close_cells(revision)
        mark = _Mark(now, dict(self._totals), self._heard, gateways or bool(self._gateways))
        self._latest = mark
        if not self._history or now - self._history[-1].at >= self._recent_seconds / KEPT_MARKS:
            bare = {revision: replace(total, cells={}) for revision, total in self._totals.items()}
            self._history.append(replace(mark, totals=bare))
        while len(self._history) > 1 and self._history[0].at < now - self._recent_seconds:
            self._history.popleft()

    def begin(self, now: float) -> None:
        """A window begins: at the last sample, so that nothing between it and now is lost. Its cells begin with it."""
        self._cell_starts = {
            (revision, name): (requests, _hits(total, name))
            for revision, total in self._totals.items()
            for name, requests in _requests(total).items()
        }
        self._totals = {revision: replace(total, cells={}) for revision, total in self._totals.items()}
        self._window = self._latest or _Mark(now, dict(self._totals), self._heard)

    def in_window(self, revision: str) -> Figures | None:
        """What was measured since the window began; None before the first sample in it."""
        return self._figures(revision, self._window)

    def recent(self, revision: str) -> Figures | None:
        """What was measured lately, for at most the time given at the beginning; None before two samples."""
        return self._figures(revision, self._history[0] if self._history else None)

    def _close_cells(self, revision: str) -> None:
        """Those with enough requests in them."""
        total = self._totals[revision]
        cells = dict(total.cells)
        for name, requests in _requests(total).items():
            began, before = self._cell_starts.get((revision, name), (0.0, {}))
            if requests - began >= CELL_REQUESTS:
                hits = _hits(total, name)
                new = {key: count - before.get(key, 0.0) for key, count in hits.items()}
                cells[name] = cells.get(name, NO_CELLS).with_cell(requests - began, new)
                self._cell_starts[revision, name] = (requests, hits)
        if any(cells[name] is not total.cells.get(name) for name in cells):
            self._totals[revision] = replace(total, cells=cells)

    def _add(self, revision: str, counts: Counts, latencies: Latencies) -> None:
        old = self._totals.get(revision, _Total())
        self._totals[revision] = _Total(
            Counts(old.counts.requests + counts.requests, old.counts.errors + counts.errors),
            Latencies(
                _plus(old.latencies.ttft, latencies.ttft),
                _plus(old.latencies.itl, latencies.itl),
                _plus(old.latencies.e2e, latencies.e2e),
            ),
            old.cells,
        )

    def _figures(self, revision: str, mark: _Mark | None) -> Figures | None:
        """Without gateways, the engines' count of first tokens stands for the requests, and no error is seen. Where there
        are gateways and none has answered, nothing is known: engines do not see what fails before them."""
        last = self._latest
        if mark is None or last is None or last.at <= mark.at:
            return None
        if last.gateways and last.heard == mark.heard:
            return None
        now = last.totals.get(revision, _Total())
        start = mark.totals.get(revision, _Total())
        ttft = since(start.latencies.ttft, now.latencies.ttft)
        requests = now.counts.requests - start.counts.requests if last.gateways else ttft.count

        def tail(name: str, histogram: Histogram) -> Tail | None:
            return make_tail(histogram, now.cells.get(name, NO_CELLS))

        return Figures(
            requests=round(requests),
            errors=round(now.counts.errors - start.counts.errors),
            clumping=now.cells.get("requests", NO_CELLS).clumping(FAILED),
            ttft=tail("ttft", ttft),
            itl=tail("itl", since(start.latencies.itl, now.latencies.itl)),
            e2e=tail("e2e", since(start.latencies.e2e, now.latencies.e2e)),
            seconds=last.at - mark.at,
        )


def _requests(total: _Total) -> dict[str, float]:
    """How many were counted so far, by name of the cells."""
    latencies = total.latencies
    return {
        "requests": total.counts.requests,
        "ttft": latencies.ttft.count,
        "itl": latencies.itl.count,
        "e2e": latencies.e2e.count,
    }


def _hits(total: _Total, name: str) -> Mapping[float, float]:
    """How many of them were counted as what: failed, or slower than each bound."""
    if name == "requests":
        return {FAILED: total.counts.errors}
    histogram: Histogram = getattr(total.latencies, name)
    return {bound: histogram.count - n for bound, n in histogram.buckets.items() if bound != math.inf}


def _plus(old: Histogram, new: Histogram) -> Histogram:
    """The sum; where nothing is new the same object, which many marks share."""
    return together((old, new)) if new.count else old
