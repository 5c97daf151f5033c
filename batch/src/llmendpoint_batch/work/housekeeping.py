"""Deletes what is past its time, and saves the service's clock."""

import asyncio

import structlog

from llmendpoint_batch.errors import StorageFailed
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.store import (
    batches,
    clock,
    files,
    lines,
    response_events,
    response_usage,
    responses,
    uploads,
)
from llmendpoint_batch.store.blobs import Blobs
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.work.times import Times

EVERY_SECONDS = 10.0
UPLOAD_KEPT_SECONDS = 24 * 3600.0
"""How long an expired upload can still be seen as such."""
SOME = 500
"""Rows of one transaction: other writes wait for it."""
log = structlog.get_logger()


async def keep_house(database: Database, blobs: Blobs, times: Times, metrics: Metrics) -> None:
    while True:
        try:
            await clean(database, blobs, times, metrics)
        except StorageFailed as error:
            metrics.storage_failures.inc()
            log.error("nothing can be deleted now; tried again", error=str(error))
        except Exception:
            log.exception("what is past its time was not all deleted")
        await asyncio.sleep(EVERY_SECONDS)


async def clean(database: Database, blobs: Blobs, times: Times, metrics: Metrics) -> None:
    await database.write(clock.save, times.to_save())
    while old := await database.write(files.remove_old, times.age(), SOME):
        for file_id in old:
            await asyncio.to_thread(blobs.remove, file_id)
        log.info("deleted files past their time", files=len(old))
    while await database.write(lines.clear, SOME):
        pass
    while await database.write(batches.forget_old, times.age(), SOME):
        pass
    while parts := await database.write(uploads.expire, times.age(), times.age() + UPLOAD_KEPT_SECONDS, SOME):
        for part_id in parts:
            await asyncio.to_thread(blobs.remove, part_id)
    while await database.write(uploads.forget_old, times.age(), SOME):
        pass
    while await database.write(responses.remove_old, times.age(), SOME):
        pass
    while await database.write(response_events.remove_old, times.age(), SOME):
        pass
    _, size = await database.read(files.usage)
    metrics.storage.set(size)
    stored, size = await database.read(response_usage.usage)
    metrics.responses.set(stored)
    metrics.responses_bytes.set(size)
