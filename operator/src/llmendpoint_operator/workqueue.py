"""A queue of keys. Each is queued at most once, processed by one worker at a time, and retried with
backoff."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from .core.names import Key
from .core.pauses import growing_pause

log = structlog.get_logger()


FIRST_RETRY_S = 0.2
LAST_RETRY_S = 300.0


class WorkQueue:
    """`work(key)` returns the seconds until the key is requeued, or None. An exception requeues it with
    backoff."""

    def __init__(self, work: Callable[[Key], Awaitable[float | None]], workers: int = 8) -> None:
        self._work = work
        self._workers = workers
        self._waiting: dict[Key, None] = {}
        self._busy: set[Key] = set()
        self._again: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._wake = asyncio.Condition()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, key: Key) -> None:
        """Queue the key. If it is being processed, it is processed once more afterwards."""
        self._cancel_timer(key)
        if key in self._busy:
            self._again.add(key)
        elif key not in self._waiting:
            self._waiting[key] = None
            asyncio.get_running_loop().create_task(self._notify())

    def add_after(self, key: Key, delay_s: float) -> None:
        """Queue the key after a delay, unless `add` queues it before."""
        self._cancel_timer(key)
        self._timers[key] = asyncio.get_running_loop().call_later(delay_s, self.add, key)

    async def run(self) -> None:
        """Process keys until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(self._workers):
                group.create_task(self._worker())

    async def _notify(self) -> None:
        async with self._wake:
            self._wake.notify()

    async def _worker(self) -> None:
        while True:
            async with self._wake:
                await self._wake.wait_for(lambda: bool(self._waiting))
                key = next(iter(self._waiting))
                del self._waiting[key]
                self._busy.add(key)
            await self._do(key)
            # A pass without writes never yields. Thousands of them in a row would delay the Lease's renewal.
            await asyncio.sleep(0)

    async def _do(self, key: Key) -> None:
        delay: float | None = None
        try:
            delay = await self._work(key)
            self._failures.pop(key, None)
        except Exception as error:  # any: this endpoint is retried, and the others go on
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = growing_pause(FIRST_RETRY_S, failures, LAST_RETRY_S)
            log.warning(
                "reconcile failed",
                endpoint="/".join(key),
                error=str(error),
                kind=type(error).__name__,
                retry_s=delay,
            )
        finally:
            self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            if delay is None or key not in self._failures:
                return self.add(key)
            delay = min(delay, 1.0)  # the change that requeued it may be the fix, or only its own write
        if delay is not None:
            self.add_after(key, delay)
        return None

    def _cancel_timer(self, key: Key) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
