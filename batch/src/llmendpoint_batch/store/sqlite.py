"""SQLite: one connection that writes, one that reads.

Every write is one transaction that is on the disk when it returns (WAL, synchronous FULL). A second process must not
have the same folder: it would send the same lines. `take_folder` sees to that, and a killed process gives it back.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from llmendpoint_batch.errors import InUse, StorageFull
from llmendpoint_batch.store.connection import Connection
from llmendpoint_batch.store.schema import SQLITE

P = ParamSpec("P")
T = TypeVar("T")
FULL_CODES = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)


class SqliteConnection(sqlite3.Connection):
    def stream(self, sql: str, values: Sequence[Any], /) -> Iterator[Any]:
        return self.execute(sql, values)


def connect(path: Path) -> SqliteConnection:
    """May be used from another thread than this one, by one at a time."""
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=30, factory=SqliteConnection
    )
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA journal_size_limit = 67108864")
    connection.execute("PRAGMA temp_store = MEMORY")  # the root file system is read-only
    return connection


def transact(
    connection: SqliteConnection,
    do: Callable[Concatenate[Connection, P], T],
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


class Sqlite:
    """The Backend that is a file."""

    away = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer = connect(path)
        self._writer.executescript(SQLITE)
        self._writer.execute("PRAGMA user_version = 1")
        self._reader = connect(path)
        self._reader.execute("PRAGMA query_only = ON")

    def write(self, do: Callable[[Connection], T], /) -> T:
        return transact(self._writer, do)

    def read(self, do: Callable[[Connection], T], /) -> T:
        return do(self._reader)

    def read_long(self, do: Callable[[Connection], T], /) -> T:
        connection = connect(self._path)
        try:
            return do(connection)
        finally:
            connection.close()

    def close(self) -> None:
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
