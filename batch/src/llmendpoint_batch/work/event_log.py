"""Keeps the events of streamed background responses, and wakes those who follow them.

An event is shown after it is on the disk, so that nobody has seen one that a crash loses. The events of all responses that
come while a transaction is written are in the next one.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import structlog

from llmendpoint_batch.errors import NotKept, StorageFailed
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.store import response_events
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.store.response_events import Group

TOGETHER_SECONDS = 0.1
"""Between two transactions. Text comes to who follows in steps of it."""
RETRY_SECONDS = 1.0
PENDING_BYTES = 1 << 20
"""Of one response, not yet written. Its stream is read no further meanwhile."""
log = structlog.get_logger()


@dataclass(slots=True)
class _Pending:
    first: int
    count: int = 0
    data: bytearray = field(default_factory=bytearray)

    def group(self, response_id: str) -> Group:
        return Group(response_id, self.first, self.first + self.count - 1, bytes(self.data))


class EventLog:
    """`most_bytes`: of all that is stored for responses."""

    def __init__(self, database: Database, most_bytes: int, metrics: Metrics) -> None:
        self._database, self._most_bytes, self._metrics = database, most_bytes, metrics
        self._pending: dict[str, _Pending] = {}
        self._writing: set[str] = set()
        self._live: set[str] = set()
        """responses whose events come now"""
        self._refused: dict[str, str] = {}
        """of these, why no more are kept"""
        self._came, self._written = asyncio.Event(), asyncio.Condition()
        self._followers: dict[str, set[asyncio.Event]] = {}

    async def add(self, response_id: str, number: int, text: bytes) -> None:
        """Raises NotKept."""
        self._check(response_id)
        self._live.add(response_id)
        pending = self._pending.setdefault(response_id, _Pending(number))
        pending.count += 1
        pending.data += text
        self._came.set()
        if len(pending.data) > PENDING_BYTES:
            await self.flushed(response_id)

    async def flushed(self, response_id: str) -> None:
        """Returns when all events of the response are on the disk. Raises NotKept."""
        async with self._written:
            await self._written.wait_for(
                lambda: response_id not in self._pending and response_id not in self._writing
            )
        self._check(response_id)

    def _check(self, response_id: str) -> None:
        if response_id in self._refused:
            raise NotKept(self._refused[response_id])

    def forget(self, response_id: str) -> None:
        """No more events come of it in this attempt."""
        self._live.discard(response_id)
        self._pending.pop(response_id, None)
        self._refused.pop(response_id, None)

    async def run(self) -> None:
        while True:
            await self._came.wait()
            self._came.clear()
            groups = [pending.group(response_id) for response_id, pending in self._pending.items()]
            self._writing = set(self._pending)
            self._pending = {}
            refused = await self._write(groups)
            async with self._written:
                self._refused |= {key: why for key, why in refused.items() if key in self._live}
                ids, self._writing = self._writing, set()
                self._written.notify_all()
            for response_id in ids:
                self.changed(response_id)
            await asyncio.sleep(TOGETHER_SECONDS)

    async def _write(self, groups: list[Group]) -> dict[str, str]:
        while True:
            try:
                return await self._database.write(response_events.add, groups, self._most_bytes)
            except StorageFailed as error:
                self._metrics.storage_failures.inc()
                log.error("events wait for the storage", responses=len(groups), error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
            except Exception:  # of this program: other responses must go on
                log.exception("events cannot be kept")
                return {group.response_id: "The service failed at its events." for group in groups}

    def changed(self, response_id: str) -> None:
        for follower in self._followers.get(response_id, ()):
            follower.set()

    @asynccontextmanager
    async def following(self, response_id: str) -> AsyncIterator[asyncio.Event]:
        """Set when there may be something new."""
        follower = asyncio.Event()
        self._followers.setdefault(response_id, set()).add(follower)
        try:
            yield follower
        finally:
            self._followers[response_id].discard(follower)
            if not self._followers[response_id]:
                del self._followers[response_id]
