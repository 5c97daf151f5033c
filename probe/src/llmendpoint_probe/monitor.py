"""Feeds core/readiness.py with heartbeats and generations, and answers from it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import structlog

from .core.readiness import Answer, Event, Phase, Readiness, answer, conclude, observe
from .engine import Engine, EngineAway, GenerationFailed
from .pulse import Pulse

INTERVAL_S = 1.0
FRESH_LIMIT_S = 1.0
"""How long /ready waits for its own heartbeat; the kubelet allows 2 s."""

log = structlog.get_logger()


class Monitor:
    """One engine's readiness, which `pulse` follows. At most one heartbeat and one generation are in progress."""

    def __init__(self, engine: Engine, pulse: Pulse) -> None:
        self._engine = engine
        self._pulse = pulse
        self._readiness = Readiness()
        self._connections = 0
        self._closing = False
        self._beating: asyncio.Task[None] | None = None
        self._generating: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Monitor]:
        """Send a heartbeat every second while the block runs."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            tasks = [one for one in (task, self._beating, self._generating) if one is not None]
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.wait({self._beat()}, timeout=INTERVAL_S)
            await asyncio.sleep(INTERVAL_S)

    async def ready(self) -> Answer:
        """The answer after a heartbeat that ended later than the question, so that a recent restart is noticed."""
        await asyncio.wait({self._beat()}, timeout=FRESH_LIMIT_S)
        return answer(self._readiness, time.monotonic())

    def alive(self) -> Answer:
        """The answer from what is known now. A heartbeat that hangs counts as silence."""
        return self._pulse.alive(self._readiness)

    def _beat(self) -> asyncio.Task[None]:
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._beat_once())
        return self._beating

    async def _beat_once(self) -> None:
        try:
            beat = await self._engine.beat()
        except EngineAway as error:
            self._observe(Event.LOST, f"the engine cannot be reached: {error}")
            return
        fresh = beat.connections != self._connections
        if fresh and not self._closing and self._readiness.phase is not Phase.AWAY:
            self._observe(Event.LOST, "the connection was closed: the engine has been started again")
        if self._readiness.phase is Phase.AWAY:
            self._observe(Event.CONNECTED, "the engine is reached")
        self._connections, self._closing = beat.connections, beat.closing
        healthy = 200 <= beat.status < 300
        detail = self._readiness.detail if healthy else f"the engine's health is answered with {beat.status}"
        self._observe(Event.HEALTHY if healthy else Event.UNHEALTHY, detail)

    def _observe(self, event: Event, detail: str) -> None:
        before = self._readiness
        self._follow(before, observe(before, event, detail, time.monotonic()))

    def _follow(self, before: Readiness, after: Readiness) -> None:
        self._readiness = after
        self._pulse.follow(after.phase)
        turned = after.phase is not before.phase and Phase.READY in (after.phase, before.phase)
        if turned or after.detail != before.detail:  # a loading engine is tried again every second
            log.info("engine", phase=after.phase.value, detail=after.detail)
        if before.phase is Phase.WARMING and after.phase is not Phase.WARMING:
            self._stop_generating()
        if after.attempt != before.attempt:
            self._stop_generating()
            self._generating = asyncio.create_task(self._generate(after.attempt))

    def _stop_generating(self) -> None:
        task = self._generating
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    async def _generate(self, attempt: int) -> None:
        try:
            await self._engine.generate()
            event, detail = Event.GENERATED, "a generation succeeded"
        except GenerationFailed as error:
            event, detail = Event.FAILED, f"no generation yet: {error}"
        self._follow(self._readiness, conclude(self._readiness, attempt, event, detail))
