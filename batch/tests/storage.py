"""The two storages that the same tests run on."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import psycopg

from llmendpoint_batch.store.blobs import Blobs
from llmendpoint_batch.store.chunks import Chunks
from llmendpoint_batch.store.connection import Backend, Connection
from llmendpoint_batch.store.folder import Folder
from llmendpoint_batch.store.postgres import SCHEMA, Postgres
from llmendpoint_batch.store.sqlite import Sqlite, connect

P = ParamSpec("P")
T = TypeVar("T")
LOST = (
    "UPDATE lines SET answer = 'lost', state = 1",
    "UPDATE responses_usage SET count = 7",
    "DELETE FROM responses",
)


class Storage(Protocol):
    """`backend` and `blobs` are those of a process; `crash` ends it in the middle of a transaction, and begins another."""

    backend: Backend
    blobs: Blobs

    def crash(self) -> None: ...

    def close(self) -> None: ...

    def write(self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T: ...

    def read(self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T: ...


class _Both:
    backend: Backend
    blobs: Blobs

    def write(self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        return self.backend.write(lambda connection: do(connection, *args, **named))

    def read(self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        return self.backend.read(lambda connection: do(connection, *args, **named))


class OnDisk(_Both):
    def __init__(self) -> None:
        self.data = Path(tempfile.mkdtemp())
        self.blobs = Folder(self.data)
        self.open()

    def open(self) -> None:
        self.backend = Sqlite(self.data / "db")
        self.backend._writer.execute("PRAGMA synchronous = OFF")  # the machine does not lose power

    def crash(self) -> None:
        self.backend.close()
        half = connect(self.data / "db")
        half.execute("BEGIN IMMEDIATE")
        for sql in LOST:
            half.execute(sql)
        half.close()
        self.open()

    def close(self) -> None:
        self.backend.close()
        shutil.rmtree(self.data)


class OnServer(_Both):
    def __init__(self, url: str) -> None:
        self.url = url
        self.open()
        self.empty()

    def open(self) -> None:
        self.backend, self.chunks = Postgres(self.url), Chunks(self.url)
        self.blobs = self.chunks
        self.write(lambda connection: connection.execute("SELECT 1"))

    def empty(self) -> None:
        tables = "batches, files, lines, chunks, responses, response_streams, response_events"
        self.write(lambda connection: connection.execute(f"TRUNCATE {tables}"))
        self.write(lambda connection: connection.execute("UPDATE responses_usage SET count = 0, bytes = 0"))

    def crash(self) -> None:
        self.close()
        half: psycopg.Connection[Any] = psycopg.connect(self.url)
        half.execute(f"SET search_path TO {SCHEMA}".encode())
        for sql in LOST:
            half.execute(sql.encode())
        half.close()
        self.open()

    def close(self) -> None:
        self.backend.close()
        self.chunks.close()
