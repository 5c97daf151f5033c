"""Opens what the settings name: SQLite and a folder, or PostgreSQL for both."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from llmendpoint_batch.core.clock import Saved
from llmendpoint_batch.errors import StorageAway
from llmendpoint_batch.store import clock, files
from llmendpoint_batch.store.blobs import Blobs
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.store.folder import Folder
from llmendpoint_batch.store.sqlite import Sqlite, take_folder

RETRY_SECONDS = 1.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Opened:
    """`saved`: the service's own time, by an earlier run. `swept`: files that a killed process left unfinished."""

    database: Database
    blobs: Blobs
    saved: Saved | None
    swept: int


async def open_storage(data: Path | None, url: str | None, tell: Callable[[str], None]) -> Opened:
    """Waits while another process has it, or while the database is away, and tells why. Raises BadUrl."""
    if url is None:
        assert data is not None, "the command line sees to it"
        # An old pod may be ending on another node: it answers no more once this one has the folder.
        await asyncio.to_thread(take_folder, data, wait=True)
        return await _first_look(Database(Sqlite(data / "batches.sqlite")), Folder(data))
    # Imported here: libpq takes memory that a service with SQLite needs not.
    from llmendpoint_batch.store.chunks import Chunks
    from llmendpoint_batch.store.postgres import Postgres

    database, blobs, told = Database(Postgres(url)), Chunks(url), ""
    while True:
        try:
            return await _first_look(database, blobs)
        except StorageAway as error:
            if str(error) != told:
                log.error("waits for the database", error=str(error))
            told = str(error)
            tell(told)
            await asyncio.sleep(RETRY_SECONDS)


async def _first_look(database: Database, blobs: Blobs) -> Opened:
    known = await database.write(files.ids)  # the connection that writes is the one that takes the database
    swept = await asyncio.to_thread(blobs.sweep, known)
    return Opened(database, blobs, await database.read(clock.saved), swept)
