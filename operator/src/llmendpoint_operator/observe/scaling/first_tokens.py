"""Time to the first token of an endpoint's requests, read from its engines every pollingInterval.

Gateways cannot report it: a response's headers are sent before its first token, and a gateway does not
inspect streams. Only endpoints that scale by it are asked.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from ...core.names import Key
from ...core.rollout.measurements import Measurements
from ...core.scaling.demand import FirstTokens
from ...errors import Unanswered
from ..latencies import SCRAPE_TIMEOUT_S, parse_latencies, some
from ..targets import Target
from ..wire import Wire
from .rota import Followed, Rota

WINDOW_S = 60.0
"""Seconds that a percentile covers; less after a change of replicas, whose older figures do not apply."""
TICK_S = 0.5
TOGETHER = ""
"""The key under which all replicas are measured together."""


class FirstTokenTimes:
    """Reads the metrics of the followed endpoints' replicas."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._rota: Rota[Measurements] = Rota(self._ask, lambda: Measurements(WINDOW_S))
        self.forget = self._rota.forget

    def follow(self, key: Key, pods: Iterable[Target], interval: float) -> None:
        """Ask these replicas from now on; `interval` in seconds."""
        targets = tuple(some(tuple(pods)))
        one = self._rota.follow(key, interval)
        if {pod.uid for pod in targets} != {pod.uid for pod in one.pods}:
            one.pods, one.told = targets, Measurements(WINDOW_S)

    def of(self, key: Key) -> FirstTokens | None:
        """The recent figures; None if nothing is known or no request was measured."""
        measured = self._rota.told(key)
        figures = measured.recent(TOGETHER) if measured is not None else None
        p95 = figures.ttft.p95 if figures is not None and figures.ttft is not None else None
        return FirstTokens(p95, figures.requests) if figures is not None and p95 is not None else None

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                await asyncio.sleep(TICK_S)
                self._rota.ask_due()
        finally:
            self._rota.stop()

    async def _ask(self, one: Followed[Measurements]) -> None:
        measured = one.told
        answers = await asyncio.gather(*(self._read(one.namespace, pod, measured) for pod in one.pods))
        if any(answers):
            one.told_at = time.monotonic()
            measured.sampled(one.told_at)

    async def _read(self, namespace: str, pod: Target, into: Measurements) -> bool:
        try:
            async with self._rota.slots.held(namespace):
                page = await self._wire.text("metrics", f"{pod.url}/metrics", SCRAPE_TIMEOUT_S)
            into.add_engine(pod.uid, TOGETHER, parse_latencies(page))
        except Unanswered:
            return False
        return True
