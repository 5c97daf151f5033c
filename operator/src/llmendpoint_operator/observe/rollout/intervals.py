"""Counts the requests of endpoints at rest in intervals of ten minutes: what a new revision is compared with later.

Only endpoints with a relative limit are read. Their figures lie in the leader's memory: after a restart of the operator they are
gathered anew, and a rollout is compared with the minutes before its switch alone until then.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from dataclasses import dataclass, field

import structlog

from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.rollout.evidence import Figures
from ...core.rollout.limits import Limits, find_limits
from ...core.rollout.measurements import Measurements
from ...core.rollout.tails import Tail
from ..gateways import Gateways
from ..slots import Slots
from ..targets import Target, targets_of
from ..wire import Wire
from .measurements import sample

log = structlog.get_logger()

INTERVAL_S = 600.0
MOST = 18
"""Intervals that are kept of an endpoint: three hours."""
AT_ONCE, OF_A_NAMESPACE = 8, 2
LOOK_S = 5.0
"""Between two looks at which endpoints are due."""


@dataclass(slots=True)
class _Resting:
    """An endpoint. `due`: when it is read next, in monotonic seconds; infinite while it is read."""

    revision: str
    limits: Limits
    pods: tuple[Target, ...]
    due: float
    measurements: Measurements = field(default_factory=lambda: Measurements(0.0))
    intervals: deque[Figures] = field(default_factory=lambda: deque(maxlen=MOST))


class Intervals:
    """The leader's."""

    def __init__(self, wire: Wire, gateways: Gateways) -> None:
        self._wire = wire
        self._gateways = gateways
        self._slots = Slots(AT_ONCE, OF_A_NAMESPACE)
        self._resting: dict[Key, _Resting] = {}

    def __len__(self) -> int:
        return len(self._resting)

    def update(self, snapshot: Snapshot) -> None:
        """Count the requests of the revision that serves, from now on."""
        endpoint = snapshot.endpoint
        key = (endpoint.namespace, endpoint.name)
        rollout = endpoint.status.get("rollout") or {}
        revision = rollout.get("blue") or endpoint.status.get("activeRevision")
        limits = find_limits(endpoint.spec, 0.0) if endpoint.spec is not None else None
        if endpoint.deleting or not revision or limits is None or not limits.relative:
            self.forget(key)
            return
        pods = tuple(targets_of(snapshot, (revision,))) if _ratios(limits) else ()
        known = self._resting.get(key)
        if known is None or known.revision != revision:
            self._resting[key] = _Resting(revision, limits, pods, time.monotonic())
        else:
            known.limits, known.pods = limits, pods

    def of(self, key: Key, revision: str) -> tuple[Figures, ...]:
        """The revision's intervals, the latest last."""
        known = self._resting.get(key)
        return tuple(known.intervals) if known is not None and known.revision == revision else ()

    def forget(self, key: Key) -> None:
        """Drop an endpoint."""
        self._resting.pop(key, None)

    async def run(self) -> None:
        """Read those that are due, until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                now = time.monotonic()
                for key, one in self._resting.items():
                    if one.due <= now:
                        one.due = math.inf
                        group.create_task(self._read(key, one), name=f"interval {'/'.join(key)}")
                await asyncio.sleep(LOOK_S)

    async def _read(self, key: Key, one: _Resting) -> None:
        """End one interval and begin the next. The next reading waits until this one is over: engines may hang, and readings
        that wait must not become more and more."""
        began = time.monotonic()
        try:
            if not await sample(self._wire, self._gateways, key, one.pods, one.measurements, self._slots):
                return
            now = time.monotonic()
            one.measurements.sampled(now, self._gateways.exist)
            figures = one.measurements.in_window(one.revision)
            if figures is not None and figures.requests > 0:
                one.intervals.append(_kept(figures, one.limits))
            one.measurements.begin(now)
            one.measurements.keep(
                {gateway.uid for gateway in self._gateways.ready()}, {pod.uid for pod in one.pods}
            )
        except Exception:  # any: engines may answer anything; the next interval is still read
            log.exception("interval not read", endpoint="/".join(key))
        finally:
            one.due = began + INTERVAL_S


def _ratios(limits: Limits) -> set[str]:
    """The latencies that are compared."""
    return {limit.field for limit in limits.latencies if limit.ratio is not None}


def _kept(figures: Figures, limits: Limits) -> Figures:
    """Without what is not compared. Most bounds are faster or slower than all requests: their number is kept once."""
    names = _ratios(limits)

    def bare(name: str, tail: Tail | None) -> Tail | None:
        if tail is None or name not in names:
            return None
        once: dict[float, float] = {}
        return Tail(
            tail.requests, tail.bounds, tuple(once.setdefault(number, number) for number in tail.slower)
        )

    return figures.with_latencies(bare)
