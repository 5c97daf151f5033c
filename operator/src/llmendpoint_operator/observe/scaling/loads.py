"""Load as the engines report it (`GET /load`), asked every pollingInterval if there is no gateway.

Gateways know more: without one no requests are held, and requests on the way to a replica are not counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping

from ...core.names import Key
from ...core.scaling.demand import Reading, Report
from ...errors import Unanswered
from ..reports import parse_load
from ..targets import Target
from ..wire import Wire
from .rota import Followed, Rota

LOAD_TIMEOUT_S = 1.0


class EngineLoads:
    """Asks the replicas of the followed endpoints."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._rota: Rota[Mapping[str, Report | None]] = Rota(self._ask, dict)
        self.forget = self._rota.forget
        self.ask_due = self._rota.ask_due
        self.stop = self._rota.stop

    def follow(self, key: Key, pods: Iterable[Target], interval: float) -> None:
        """Ask these replicas from now on; `interval` in seconds."""
        self._rota.follow(key, interval).pods = tuple(pods)

    def reports(self, key: Key) -> Mapping[str, Report | None]:
        """Reports by replica, None for one that did not answer; empty while nothing is known."""
        return self._rota.told(key) or {}

    async def _ask(self, one: Followed[Mapping[str, Report | None]]) -> None:
        pods = one.pods
        answers = await asyncio.gather(*(self._load(one.namespace, pod) for pod in pods))
        told = {pod.name: report for pod, report in zip(pods, answers, strict=True)}
        # Without replicas the load is known to be none, which differs from a replica that does not answer.
        one.told, one.told_at = told or {"": Report()}, time.monotonic()

    async def _load(self, namespace: str, pod: Target) -> Report | None:
        try:
            async with self._rota.slots.held(namespace):
                page = await self._wire.json("load", f"{pod.url}/load", LOAD_TIMEOUT_S)
            load = parse_load(page, time.monotonic())
        except (Unanswered, KeyError, TypeError, ValueError, AttributeError):
            return None
        return Report(0, {pod.name: Reading(0, load)})
