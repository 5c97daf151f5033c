"""When the engines of each followed endpoint are asked: each endpoint at an interval of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from ...core.names import Key
from ..slots import Slots
from ..targets import Target

log = structlog.get_logger()

AT_ONCE = 32
OF_A_NAMESPACE = 8
STALE_INTERVALS = 2.5
"""An answer that is older than this many intervals is stale."""

T = TypeVar("T")


@dataclass(slots=True)
class Followed(Generic[T]):
    """One endpoint's replicas, and what they answered. Times are monotonic; the interval is in seconds."""

    told: T
    interval: float
    namespace: str
    pods: tuple[Target, ...] = ()
    asked_at: float = 0.0
    told_at: float = 0.0
    asking: asyncio.Task[None] | None = None


class Rota(Generic[T]):
    """`ask`: asks the replicas of one endpoint. `nothing`: makes the initial value of `told`. Each question
    to an engine holds one of `slots`."""

    def __init__(self, ask: Callable[[Followed[T]], Awaitable[None]], nothing: Callable[[], T]) -> None:
        self._ask = ask
        self._nothing = nothing
        self._followed: dict[Key, Followed[T]] = {}
        self.slots = Slots(AT_ONCE, OF_A_NAMESPACE, spare=OF_A_NAMESPACE)

    def follow(self, key: Key, interval: float) -> Followed[T]:
        """Ask about this endpoint from now on, every `interval` seconds."""
        if key not in self._followed:
            self._followed[key] = Followed(self._nothing(), interval, key[0])
        one = self._followed[key]
        one.interval = interval
        return one

    def forget(self, key: Key) -> None:
        """Stop asking about this endpoint."""
        one = self._followed.pop(key, None)
        if one is not None and one.asking is not None:
            one.asking.cancel()

    def told(self, key: Key) -> T | None:
        """The last answers; None if they are stale or there are none."""
        one = self._followed.get(key)
        if one is None or time.monotonic() - one.told_at > STALE_INTERVALS * one.interval:
            return None
        return one.told

    def ask_due(self) -> None:
        """Start to ask every endpoint that is due, unless its last question is still open. No endpoint waits
        for another one's replicas."""
        now = time.monotonic()
        for key, one in self._followed.items():
            if now - one.asked_at >= one.interval and (one.asking is None or one.asking.done()):
                one.asked_at = now
                one.asking = asyncio.create_task(self._try(key, one), name="rota")

    def stop(self) -> None:
        """Forget every endpoint."""
        for key in list(self._followed):
            self.forget(key)

    async def _try(self, key: Key, one: Followed[T]) -> None:
        """Ask once. An error affects only this endpoint, and it is asked again."""
        try:
            await self._ask(one)
        except Exception:  # any: engines may answer anything; this endpoint is asked again
            log.exception("engines could not be asked", endpoint="/".join(key))
