"""PostgreSQL, by a URL: connections that are made anew when they break, in a schema of this service's own.

One process has the database, by an advisory lock on the connection that writes. If that connection breaks, another
process may have taken the lock before this one has it again: `owner.epoch` counts who took it, so that this process sees
it and ends. A transaction whose connection broke before its COMMIT was sent is run again. One that broke in its COMMIT
may be done or not: StorageAway says so, and who called looks at what the database has.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from llmendpoint_batch.errors import BadUrl, InUse, StorageAway, StorageFull
from llmendpoint_batch.store.connection import Connection, Rows
from llmendpoint_batch.store.schema import CHUNKS, POSTGRES

T = TypeVar("T")
SCHEMA = "llmendpoint_batch"
LOCK = 7_309_453_301
"""The advisory lock's number: any that no other program in this database takes."""
DEFAULTS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
    "application_name": "llmendpoint-batch",
}
"""A server that vanished without a word is given up within seconds. What the URL says comes first."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
"""Seconds between two attempts to connect, doubled each time."""
SILENT_SECONDS = 30.0
"""After which a database that answers nothing counts as away. A server that hangs acknowledges bytes all the same."""
FULL_STATES = ("53100", "53200", "54000")
"""disk_full, out_of_memory, program_limit_exceeded."""
LOST_STATES = ("08", "57P")
"""How the codes of a broken connection and of a server that ends begin."""


class PostgresConnection:
    """`committing`: its COMMIT was sent, and has no answer yet."""

    def __init__(self, raw: psycopg.Connection[Any]) -> None:
        self.raw, self.committing = raw, False

    def execute(self, sql: str, values: Sequence[Any] = (), /) -> Rows:
        return self.raw.execute(_marks(sql), values) if values else self.raw.execute(sql.encode())

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> Rows:
        cursor = self.raw.cursor()
        cursor.executemany(_marks(sql), values)
        return cursor

    def stream(self, sql: str, values: Sequence[Any], /) -> Iterator[Any]:
        with self.raw.cursor(name="stream") as cursor:
            cursor.itersize = 50
            cursor.execute(_marks(sql), values)
            yield from cursor


@lru_cache(maxsize=256)
def _marks(sql: str) -> bytes:
    return sql.replace("%", "%%").replace("?", "%s").encode()


class Link:
    """One connection, for one thread at a time. While the database is away it is asked for at growing intervals; between
    two attempts each call fails at once."""

    def __init__(self, connect: Callable[[], psycopg.Connection[Any]]) -> None:
        self._connect = connect
        self._connection: PostgresConnection | None = None
        self._lock = threading.Lock()
        self._pause, self._not_before = FIRST_PAUSE, 0.0
        self._since: float | None = None
        """When the call began that runs now."""
        self._away = ""

    @property
    def away(self) -> str:
        """Why the database cannot be reached; also if it took a request and is silent since."""
        since = self._since
        if since is not None and time.monotonic() - since > SILENT_SECONDS:
            return f"the database has not answered for {SILENT_SECONDS:.0f} s"
        return self._away

    def run(self, do: Callable[[PostgresConnection], T]) -> T:
        """Raises StorageAway, StorageFull, InUse, and what `do` raises."""
        with self._lock:
            self._since = time.monotonic()
            try:
                return self._twice(do)
            finally:
                self._since = None

    def _twice(self, do: Callable[[PostgresConnection], T]) -> T:
        try:
            return self._once(do)
        except _Lost as lost:
            if lost.committing:
                raise StorageAway(f"the connection broke in a COMMIT: {lost}") from lost
        try:
            return self._once(do)
        except _Lost as lost:
            raise StorageAway(f"the connection broke: {lost}") from lost

    def _once(self, do: Callable[[PostgresConnection], T]) -> T:
        connection = self._connection = self._connection or self._open()
        try:
            return do(connection)
        except psycopg.Error as error:
            if _is_lost(connection, error):
                self.drop()
                raise _Lost(_short(error), connection.committing) from error
            if error.sqlstate in FULL_STATES:
                raise StorageFull(f"the database cannot be written: {_short(error)}") from error
            raise

    def _open(self) -> PostgresConnection:
        if time.monotonic() < self._not_before:
            raise StorageAway(self._away)
        try:
            made = PostgresConnection(self._connect())
        except (psycopg.Error, StorageAway) as error:
            self._away = f"the database cannot be reached: {_short(error)}"
            self._not_before = time.monotonic() + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
            raise StorageAway(self._away) from error
        self._away, self._pause = "", FIRST_PAUSE
        return made

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.raw.close()
            self._connection = None


class _Lost(Exception):
    def __init__(self, told: str, committing: bool) -> None:
        super().__init__(told)
        self.committing = committing


def _is_lost(connection: PostgresConnection, error: psycopg.Error) -> bool:
    return connection.raw.broken or connection.raw.closed or (error.sqlstate or "").startswith(LOST_STATES)


def _short(error: Exception) -> str:
    """Host, port and cause, in one line. The server's and libpq's words of a failed connection hold no password."""
    return " ".join(str(error).split())[:300]


def check_url(url: str) -> None:
    """Raises BadUrl. What is wrong with it is not quoted: it holds a password."""
    try:
        known = urlsplit(url).scheme in ("postgresql", "postgres") and bool(conninfo_to_dict(url))
    except (ValueError, psycopg.Error):
        known = False
    if not known:
        told = "is not of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %XX for special characters"
        raise BadUrl(f"the URL of the database {told}")


def connect(url: str) -> psycopg.Connection[Any]:
    """In the service's schema. Each statement is a transaction of its own unless BEGIN says otherwise."""
    given = conninfo_to_dict(url)
    options = {name: value for name, value in DEFAULTS.items() if name not in given}
    raw = psycopg.connect(url, autocommit=True, **options)
    raw.execute(f"SET search_path TO {SCHEMA}".encode())
    return raw


def transact(connection: PostgresConnection, do: Callable[[Connection], T]) -> T:
    raw, connection.committing = connection.raw, False
    raw.execute(b"BEGIN")
    try:
        result = do(connection)
        connection.committing = True
        raw.execute(b"COMMIT")
    except BaseException:
        if not raw.broken and not raw.closed:
            try:
                raw.execute(b"ROLLBACK")
            except psycopg.Error:
                raw.close()  # nothing of it is kept
        raise
    connection.committing = False
    return result


class Postgres:
    """The Backend that is a server. Raises BadUrl; a server that is away is no error of making this."""

    def __init__(self, url: str) -> None:
        check_url(url)
        self._url = url
        self._epoch: int | None = None
        self._writer, self._reader = Link(self._take), Link(lambda: connect(url))

    @property
    def away(self) -> str:
        return self._writer.away or self._reader.away

    def write(self, do: Callable[[Connection], T], /) -> T:
        return self._writer.run(lambda connection: transact(connection, do))

    def read(self, do: Callable[[Connection], T], /) -> T:
        return self._reader.run(do)

    def read_long(self, do: Callable[[Connection], T], /) -> T:
        try:
            raw = connect(self._url)
            with raw:  # which closes it
                raw.autocommit = False
                raw.read_only = True
                return do(PostgresConnection(raw))
        except psycopg.OperationalError as error:
            raise StorageAway(f"the connection broke: {_short(error)}") from error

    def close(self) -> None:
        self._writer.drop()
        self._reader.drop()

    def _take(self) -> psycopg.Connection[Any]:
        raw = connect(self._url)
        try:
            [(mine,)] = raw.execute(b"SELECT pg_try_advisory_lock(%s)", (LOCK,))
            if not mine:
                raise StorageAway(
                    "another process serves from this database, or its connection has not ended yet"
                )
            _make_tables(raw)
            [(epoch,)] = raw.execute(b"UPDATE owner SET epoch = epoch + 1 RETURNING epoch")
            if self._epoch is not None and epoch != self._epoch + 1:
                raise InUse("another process has served from this database meanwhile")
        except BaseException:
            raw.close()
            raise
        self._epoch = epoch
        return raw


def _make_tables(raw: psycopg.Connection[Any]) -> None:
    [(there,)] = raw.execute(b"SELECT to_regnamespace(%s) IS NOT NULL", (SCHEMA,))
    if not there:
        raw.execute(f"CREATE SCHEMA {SCHEMA}".encode())
    with raw.transaction():
        raw.execute((POSTGRES + CHUNKS).encode())
