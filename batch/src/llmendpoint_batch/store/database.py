"""The SQLite database: one connection that writes, one that reads, each on a thread of its own.

Every write is one transaction that is on the disk when it returns (WAL, synchronous FULL). A second process must not
have the same folder: it would send the same lines. `take_folder` sees to that, and a killed process gives it back.
"""

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from llmendpoint_batch.errors import InUse, StorageFull

P = ParamSpec("P")
T = TypeVar("T")
SCHEMA = """
CREATE TABLE IF NOT EXISTS clock (id INTEGER PRIMARY KEY CHECK (id = 1), age REAL NOT NULL, wall REAL NOT NULL);
CREATE TABLE IF NOT EXISTS files (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, filename TEXT NOT NULL, purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, deadline REAL NOT NULL);
CREATE TABLE IF NOT EXISTS batches (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE NOT NULL, status TEXT NOT NULL, endpoint TEXT NOT NULL,
    model TEXT NOT NULL, input_file_id TEXT NOT NULL, window TEXT NOT NULL, metadata TEXT NOT NULL,
    created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, deadline REAL NOT NULL,
    late INTEGER NOT NULL DEFAULT 0, stamps TEXT NOT NULL DEFAULT '{}', total INTEGER NOT NULL DEFAULT 0,
    completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0, faults TEXT NOT NULL DEFAULT '[]',
    output_file_id TEXT, error_file_id TEXT);
CREATE INDEX IF NOT EXISTS batches_by_status ON batches (status);
CREATE INDEX IF NOT EXISTS batches_by_input ON batches (input_file_id);
CREATE TABLE IF NOT EXISTS lines (
    id INTEGER PRIMARY KEY, batch INTEGER NOT NULL, number INTEGER NOT NULL, custom_id TEXT NOT NULL,
    offset INTEGER NOT NULL, length INTEGER NOT NULL, state INTEGER NOT NULL DEFAULT 0, answer BLOB,
    UNIQUE (batch, number));
PRAGMA user_version = 1;
"""
FULL_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


def connect(path: Path) -> sqlite3.Connection:
    """May be used from another thread than this one, by one at a time."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA temp_store = MEMORY")  # the root file system is read-only
    return connection


def transact(
    connection: sqlite3.Connection,
    do: Callable[Concatenate[sqlite3.Connection, P], T],
    *args: P.args,
    **named: P.kwargs,
) -> T:
    """All of what `do` writes, or nothing. Raises StorageFull where the disk does not take it."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        try:
            result = do(connection, *args, **named)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # a full disk may have ended it already
                connection.execute("ROLLBACK")
            raise
    except sqlite3.OperationalError as error:
        if (getattr(error, "sqlite_errorcode", 0) & 0xFF) in FULL_CODES:
            raise StorageFull(f"the database cannot be written: {error}") from error
        raise
    return result


class Database:
    """For the event loop: each call runs on a thread, in the order of the calls."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = connect(path)
        self._writer.executescript(SCHEMA)
        self._reader = connect(path)
        self._reader.execute("PRAGMA query_only = ON")
        self._writing = ThreadPoolExecutor(1, "writer")
        self._reading = ThreadPoolExecutor(1, "reader")

    async def write(
        self, do: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """A call whose waiter is cancelled is still done."""
        job = self._writing.submit(lambda: transact(self._writer, do, *args, **named))
        return await asyncio.shield(asyncio.wrap_future(job))

    async def read(
        self, do: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        return await asyncio.wrap_future(self._reading.submit(do, self._reader, *args, **named))

    async def read_long(
        self, do: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        """Over a connection of its own, so that short reads do not wait for it."""

        def run() -> T:
            connection = connect(self._path)
            try:
                return do(connection, *args, **named)
            finally:
                connection.close()

        return await asyncio.to_thread(run)

    def close(self) -> None:
        self._writing.shutdown()
        self._reading.shutdown()
        self._reader.close()
        self._writer.close()


def take_folder(folder: Path, *, wait: bool) -> int:
    """The lock on the data folder, held until the process ends. `wait`: until another process gives it back;
    otherwise InUse is raised."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(lock)
        raise InUse(f"another process serves {folder}") from None
    return lock
