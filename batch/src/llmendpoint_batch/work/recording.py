"""Writes answers to the database, many in one transaction, and does not give up while the disk is full or the
database is away."""

import asyncio

import structlog

from llmendpoint_batch.errors import StorageFailed
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.store import lines
from llmendpoint_batch.store.database import Database

MOST_TOGETHER = 64
RETRY_SECONDS = 1.0
_Waiting = tuple[lines.Answered, asyncio.Future[None]]
log = structlog.get_logger()


class Recorder:
    """What comes while a transaction is written is in the next one."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database, self._metrics = database, metrics
        self._waiting: list[_Waiting] = []
        self._came = asyncio.Event()

    async def record(self, answer: lines.Answered) -> None:
        """Returns when the answer is on the disk. Until then its line counts as under way, so that a full disk stops
        the sending of more."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, done))
        self._came.set()
        await done

    async def run(self) -> None:
        while True:
            await self._came.wait()
            some, self._waiting = self._waiting[:MOST_TOGETHER], self._waiting[MOST_TOGETHER:]
            if not self._waiting:
                self._came.clear()
            await self._keep(some)

    async def _keep(self, some: list[_Waiting]) -> None:
        try:
            await self._write([answer for answer, _ in some])
        except Exception as error:
            if len(some) > 1:  # one of them is the cause, and the others are not to suffer
                for one in some:
                    await self._keep([one])
                return
            log.exception("an answer cannot be kept")
            if not some[0][1].done():
                some[0][1].set_exception(error)
            return
        for answer, done in some:
            self._metrics.line(answer.kept.good)
            if not done.done():
                done.set_result(None)

    async def _write(self, some: list[lines.Answered]) -> None:
        while True:
            try:
                return await self._database.write(lines.record, some)
            except StorageFailed as error:
                self._metrics.storage_failures.inc()
                log.error("answers wait for the storage", answers=len(some), error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
