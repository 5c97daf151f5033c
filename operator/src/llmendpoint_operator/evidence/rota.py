"""Whose engines are asked when: the replicas of each endpoint that is followed, every interval of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from .wanted import Key, Target

log = structlog.get_logger()

AT_ONCE = 32
STALE_INTERVALS = 2.5
"""An answer is too old after so many intervals."""

T = TypeVar("T")


@dataclass(slots=True)
class Followed(Generic[T]):
    """One endpoint's replicas, and what came of asking them. Times are of `time.monotonic`."""

    told: T
    interval: float
    pods: tuple[Target, ...] = ()
    asked_at: float = 0.0
    told_at: float = 0.0


class Rota(Generic[T]):
    """`ask` asks the replicas of one endpoint; `nothing` makes what is told before they were asked. Who asks an engine
    holds `limit`."""

    def __init__(self, ask: Callable[[Followed[T]], Awaitable[None]], nothing: Callable[[], T]) -> None:
        self._ask = ask
        self._nothing = nothing
        self._followed: dict[Key, Followed[T]] = {}
        self.limit = asyncio.Semaphore(AT_ONCE)

    def follow(self, key: Key, interval: float) -> Followed[T]:
        """From now on, as often as this."""
        if key not in self._followed:
            self._followed[key] = Followed(self._nothing(), interval)
        one = self._followed[key]
        one.interval = interval
        return one

    def forget(self, key: Key) -> None:
        """Nobody wants to know any more."""
        self._followed.pop(key, None)

    def told(self, key: Key) -> T | None:
        """Of late; None while nothing is known."""
        one = self._followed.get(key)
        if one is None or time.monotonic() - one.told_at > STALE_INTERVALS * one.interval:
            return None
        return one.told

    async def ask_due(self) -> None:
        """Ask the replicas of every endpoint whose time has come."""
        now = time.monotonic()
        due = [(key, one) for key, one in self._followed.items() if now - one.asked_at >= one.interval]
        for _, one in due:
            one.asked_at = now
        await asyncio.gather(*(self._try(key, one) for key, one in due))

    async def _try(self, key: Key, one: Followed[T]) -> None:
        """Whatever one endpoint's engines answer, the others' are asked, and it is asked again."""
        try:
            await self._ask(one)
        except Exception:
            log.exception("engines could not be asked", endpoint="/".join(key))
