"""Feeds core/liveness.py with evidence of work: token counters, and generations while these stand still."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import structlog

from .core.liveness import HEARTBEATS_PER_LIMIT, Liveness, alive, follow, owes, worked
from .core.readiness import Answer, Phase, Readiness
from .engine import Engine, GenerationFailed

LOOKS_PER_HEARTBEAT = 6
"""With it the counters are read every 5 s for the default limit."""

log = structlog.get_logger()


class Pulse:
    """One engine's liveness, with at most one generation of its own in progress. `limit`: seconds until it counts as
    stuck."""

    def __init__(self, engine: Engine, limit: float) -> None:
        self._engine = engine
        self._limit = limit
        self._liveness = Liveness()
        self._tokens: tuple[str, ...] = ()
        self._generating: asyncio.Task[None] | None = None

    def follow(self, phase: Phase) -> None:
        """Must be called after each step of the readiness."""
        self._liveness = follow(self._liveness, phase, time.monotonic())
        if not self._liveness.proven:
            self._stop_generating()

    def alive(self, readiness: Readiness) -> Answer:
        return alive(readiness, self._liveness, time.monotonic(), self._limit)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Pulse]:
        """Look for evidence while the block runs."""
        task = asyncio.create_task(self._run())
        try:
            yield self
        finally:
            tasks = [one for one in (task, self._generating) if one is not None]
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._limit / HEARTBEATS_PER_LIMIT / LOOKS_PER_HEARTBEAT)
            if self._liveness.proven:
                await self._look()

    async def _look(self) -> None:
        tokens = await self._engine.tokens()
        if not self._liveness.proven:  # another run began meanwhile
            return
        now = time.monotonic()
        if tokens and self._tokens and tokens != self._tokens:
            self._liveness = worked(self._liveness, now)
        self._tokens = tokens or self._tokens
        self._liveness = owes(self._liveness, now, self._limit)
        if self._liveness.owed is not None and (self._generating is None or self._generating.done()):
            self._generating = asyncio.create_task(self._generate())

    def _stop_generating(self) -> None:
        if self._generating is not None:
            self._generating.cancel()

    async def _generate(self) -> None:
        try:
            await self._engine.generate()
        except GenerationFailed as error:
            if not error.refused:
                log.warning("engine", status="no heartbeat", detail=str(error))
                return
        self._liveness = worked(self._liveness, time.monotonic())
