"""How long callers of an endpoint wait for their first token, read from its engines every pollingInterval.

From the engines and not from the gateways: an answer's headers leave before its first token, and a gateway looks into
no stream. Only endpoints that scale by it are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from ..core.autoscaling.demand import FirstTokens
from ..core.measurements import Measurements
from ..errors import Unanswered
from .figures import SCRAPE_TIMEOUT_S, parse_latencies, some
from .wanted import Key, Target
from .wire import Wire

WINDOW_S = 60.0
"""A percentile is over so long, or since the replicas changed: what fewer of them did says nothing of these."""
STALE_INTERVALS = 2.5
TICK_S = 0.5
AT_ONCE = 32
TOGETHER = ""
"""All replicas are measured as one."""


@dataclass(slots=True)
class _Followed:
    """One endpoint's replicas, and what was measured since they are these."""

    pods: tuple[Target, ...]
    interval: float
    asked_at: float = 0.0
    told_at: float = 0.0
    measured: Measurements = field(default_factory=lambda: Measurements(WINDOW_S))


class FirstTokenTimes:
    """Asks nobody but the replicas of endpoints that are followed."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._followed: dict[Key, _Followed] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)

    def follow(self, key: Key, pods: Iterable[Target], interval: float) -> None:
        """Ask these replicas from now on."""
        targets = tuple(some(tuple(pods)))
        one = self._followed.setdefault(key, _Followed(targets, interval))
        one.interval = interval
        if {pod.uid for pod in targets} != {pod.uid for pod in one.pods}:
            one.pods, one.measured = targets, Measurements(WINDOW_S)

    def forget(self, key: Key) -> None:
        """Nobody wants to know any more."""
        self._followed.pop(key, None)

    def of(self, key: Key) -> FirstTokens | None:
        """Of late; None while nothing is known, or nothing came."""
        one = self._followed.get(key)
        if one is None or time.monotonic() - one.told_at > STALE_INTERVALS * one.interval:
            return None
        figures = one.measured.recent(TOGETHER)
        if figures is None or figures.ttft_p95 is None:
            return None
        return FirstTokens(figures.ttft_p95, figures.requests)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due = [one for one in self._followed.values() if now - one.asked_at >= one.interval]
            await asyncio.gather(*(self._ask(one, now) for one in due))

    async def _ask(self, one: _Followed, now: float) -> None:
        one.asked_at, measured = now, one.measured
        answers = await asyncio.gather(*(self._read(pod, measured) for pod in one.pods))
        if any(answers):
            one.told_at = time.monotonic()
            measured.sampled(one.told_at)

    async def _read(self, pod: Target, into: Measurements) -> bool:
        try:
            async with self._limit:
                page = await self._wire.text("metrics", f"{pod.url}/metrics", SCRAPE_TIMEOUT_S)
            into.add_engine(pod.uid, TOGETHER, parse_latencies(page))
        except Unanswered:
            return False
        return True
