"""What engines say of themselves (`GET /load`), asked every pollingInterval where there is no gateway that would tell.

It is less than a gateway knows: nobody holds requests, and what is under way to a replica is not seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..core.autoscaling.demand import Reading, Report
from ..errors import Unanswered
from .reports import parse_load
from .wanted import Key, Target
from .wire import Wire

LOAD_TIMEOUT_S = 1.0
AT_ONCE = 32
STALE_INTERVALS = 2.5
"""An answer is too old after so many intervals."""


@dataclass(slots=True)
class _Followed:
    """One endpoint's replicas, and what they said when they were last asked."""

    pods: tuple[Target, ...]
    interval: float
    asked_at: float = 0.0
    told_at: float = 0.0
    told: Mapping[str, Report | None] = field(default_factory=dict)


class EngineLoads:
    """Asks nobody but the replicas of endpoints that are followed."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._followed: dict[Key, _Followed] = {}
        self._limit = asyncio.Semaphore(AT_ONCE)

    def follow(self, key: Key, pods: Iterable[Target], interval: float) -> None:
        """Ask these replicas from now on."""
        one = self._followed.setdefault(key, _Followed((), interval))
        one.pods, one.interval = tuple(pods), interval

    def forget(self, key: Key) -> None:
        """Nobody wants to know any more."""
        self._followed.pop(key, None)

    def reports(self, key: Key) -> Mapping[str, Report | None]:
        """By replica, None for one that did not answer; empty while nothing is known."""
        one = self._followed.get(key)
        if one is None or time.monotonic() - one.told_at > STALE_INTERVALS * one.interval:
            return {}
        return one.told

    async def ask_due(self) -> None:
        """Ask the replicas of every endpoint whose time has come."""
        now = time.monotonic()
        due = [one for one in self._followed.values() if now - one.asked_at >= one.interval]
        await asyncio.gather(*(self._ask(one, now) for one in due))

    async def _ask(self, one: _Followed, now: float) -> None:
        one.asked_at = now
        answers = await asyncio.gather(*(self._load(pod) for pod in one.pods))
        told = {pod.name: report for pod, report in zip(one.pods, answers, strict=True)}
        # Without a replica there is no load; that is known, and no silence.
        one.told, one.told_at = told or {"": Report()}, time.monotonic()

    async def _load(self, pod: Target) -> Report | None:
        try:
            async with self._limit:
                page = await self._wire.json("load", f"{pod.url}/load", LOAD_TIMEOUT_S)
            load = parse_load(page, time.monotonic())
        except (Unanswered, KeyError, TypeError, ValueError, AttributeError):
            return None
        return Report(0, {pod.name: Reading(0, load)})
