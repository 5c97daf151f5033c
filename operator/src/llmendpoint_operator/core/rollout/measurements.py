"""Counters read again and again from gateways and engines, made into figures of one revision over one window.

A source that is seen for the first time gives its reading as the start: what it counted before is not known to lie in
the window. After that every reading adds what came since, also across a restart of the source.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llmendpoint_verdicts.shares import CELL_REQUESTS

from .by_replica import ByReplica, Replicas
from .cells import Scales
from .evidence import Figures
from .histograms import Histogram, since, together
from .tails import make_tail

KEPT_MARKS = 10
"""Moments at which `recent` may begin; each holds a copy of the histograms that changed."""
NOTHING = Histogram()
NO_CELLS = Scales()
FAILED = 0.0
REQUESTS = (FAILED, math.inf)
"""Requests are a histogram too, with two bounds: each that failed is above FAILED."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests that ended, and those of them that failed."""

    requests: float = 0.0
    errors: float = 0.0


ByPod = Mapping[str, Mapping[str, Counts]]
"""One gateway's counters by revision and pod."""


@dataclass(frozen=True, slots=True)
class Latencies:
    """Histograms in seconds: time to first token, between two tokens, from arrival to the last token."""

    ttft: Histogram = NOTHING
    itl: Histogram = NOTHING
    e2e: Histogram = NOTHING


_Totals = dict[tuple[str, str], Histogram]
"""All that was measured, by revision and by what is measured: `requests`, or the name of a latency."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The totals at a moment, in monotonic seconds. `heard`: how often a gateway had answered."""

    at: float
    totals: _Totals
    heard: int = 0
    gateways: bool = False


class Measurements:
    """Of one endpoint. Times are monotonic seconds, given by the caller."""

    def __init__(self, recent_seconds: float) -> None:
        self._recent_seconds = recent_seconds
        self._totals: _Totals = {}
        self._cells: dict[tuple[str, str], Scales] = {}
        self._cell_starts: _Totals = {}
        self._gateways: dict[str, tuple[str, Mapping[str, Counts]]] = {}
        self._pickers: dict[str, tuple[str, ByPod]] = {}
        self._heard = 0
        self._engines: dict[str, Latencies] = {}
        self._by_replica = ByReplica()
        self._window: _Mark | None = None
        self._latest: _Mark | None = None
        self._history: deque[_Mark] = deque()
        self._in_window: dict[str, Figures | None] = {}

    def add_gateway(self, gateway: str, instance: str, counts: Mapping[str, Counts]) -> None:
        """One gateway's counters by revision; `instance` is new when they began anew."""
        known = self._gateways.get(gateway)
        self._gateways[gateway] = (instance, counts)
        self._heard += 1
        if known is None:
            return
        for revision, now in counts.items():
            before = known[1].get(revision, Counts()) if known[0] == instance else Counts()
            ended, failed = _since(before, now)
            self._add((revision, "requests"), Histogram(REQUESTS, (ended - min(failed, ended), ended)))

    def add_replicas(self, gateway: str, picker: str, counts: ByPod) -> None:
        """The same by replica; `picker` is new when these counters began anew."""
        known = self._pickers.get(gateway)
        self._pickers[gateway] = (picker, counts)
        if known is None:
            return
        start = known[1] if known[0] == picker else {}
        for revision, pods in counts.items():
            before = start.get(revision, {})
            for pod, now in pods.items():
                ended, failed = _since(before.get(pod, Counts()), now)
                if ended or failed:
                    new = Histogram(REQUESTS, (ended - failed, ended))
                    self._by_replica.add((revision, "requests"), pod, new)

    def add_engine(self, pod: str, revision: str, now: Latencies) -> None:
        """One pod's histograms; `pod` is unique among all pods, as its uid is."""
        before = self._engines.get(pod)
        self._engines[pod] = now
        if before is not None:
            self._add((revision, "ttft"), since(before.ttft, now.ttft), pod)
            self._add((revision, "itl"), since(before.itl, now.itl), pod)
            self._add((revision, "e2e"), since(before.e2e, now.e2e), pod)

    def keep(self, gateways: Collection[str], pods: Collection[str]) -> None:
        """Forget what all others have counted: an endpoint is counted for weeks, and pods come and go."""
        self._gateways = {one: known for one, known in self._gateways.items() if one in gateways}
        self._pickers = {one: known for one, known in self._pickers.items() if one in gateways}
        self._engines = {one: known for one, known in self._engines.items() if one in pods}

    def sampled(self, now: float, gateways: bool = False) -> None:
        """All sources have been read: what `recent` may begin at. `gateways`: whether there are any, answering or not."""
        self._close_cells()
        self._by_replica.sampled()
        mark = _Mark(now, dict(self._totals), self._heard, gateways or bool(self._gateways))
        self._latest = mark
        self._in_window.clear()
        if not self._history or now - self._history[-1].at >= self._recent_seconds / KEPT_MARKS:
            self._history.append(mark)
        while len(self._history) > 1 and self._history[0].at < now - self._recent_seconds:
            self._history.popleft()

    def begin(self, now: float) -> None:
        """A window begins: at the last sample, so that nothing between it and now is lost. Its cells begin with it."""
        self._by_replica = ByReplica()
        self._cells = {}
        self._cell_starts = dict(self._totals)
        self._window = self._latest or _Mark(now, dict(self._totals), self._heard)
        self._in_window.clear()

    def in_window(self, revision: str) -> Figures | None:
        """What was measured since the window began; None before the first sample in it. Computed once a sample: the sampler asks,
        and each decision until the next one."""
        if revision not in self._in_window:
            self._in_window[revision] = self._figures(revision, self._window)
        return self._in_window[revision]

    def recent(self, revision: str) -> Figures | None:
        """What was measured lately, for at most the time given at the beginning; None before two samples."""
        return self._figures(revision, self._history[0] if self._history else None)

    def _close_cells(self) -> None:
        """Those with enough requests in them."""
        for key, total in self._totals.items():
            start = self._cell_starts.get(key, NOTHING)
            if total.count - start.count >= CELL_REQUESTS:
                self._cells[key] = self._cells.get(key, NO_CELLS).with_cell(since(start, total))
                self._cell_starts[key] = total

    def _add(self, key: tuple[str, str], new: Histogram, replica: str = "") -> None:
        """Where nothing is new the total stays the same object, which many marks share."""
        if new.count:
            self._totals[key] = together(self._totals.get(key, NOTHING), new)
            if replica:
                self._by_replica.add(key, replica, new)

    def _figures(self, revision: str, mark: _Mark | None) -> Figures | None:
        """Without gateways, the engines' count of first tokens stands for the requests, and no error is seen. Where there
        are gateways and none has answered, nothing is known: engines do not see what fails before them."""
        last = self._latest
        if mark is None or last is None or last.at <= mark.at:
            return None
        if last.gateways and last.heard == mark.heard:
            return None

        def measured(name: str) -> tuple[Histogram, Scales, Replicas]:
            key = (revision, name)
            new = since(mark.totals.get(key, NOTHING), last.totals.get(key, NOTHING))
            return new, self._cells.get(key, NO_CELLS), self._by_replica.of(key)

        requests, cells, replicas = measured("requests")
        ttft = measured("ttft")
        return Figures(
            requests=round(requests.count if last.gateways else ttft[0].count),
            errors=round(sum(requests.above)),
            clumping=max(cells.clumping(FAILED), replicas.clumping(FAILED)),
            ttft=make_tail(*ttft),
            itl=make_tail(*measured("itl")),
            e2e=make_tail(*measured("e2e")),
            seconds=last.at - mark.at,
            worst=self._by_replica.worst((revision, "requests")),
        )


def _since(before: Counts, now: Counts) -> tuple[float, float]:
    """Requests and errors between two readings of one process's counters. If one fell, the process has restarted."""
    if now.requests < before.requests or now.errors < before.errors:
        return now.requests, now.errors
    return now.requests - before.requests, now.errors - before.errors
