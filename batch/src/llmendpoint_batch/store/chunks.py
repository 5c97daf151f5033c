"""The bytes of files in PostgreSQL: rows of at most CHUNK bytes each, written and read one by one."""

import io
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import structlog

from llmendpoint_batch.errors import StorageFailed
from llmendpoint_batch.store.postgres import Link, PostgresConnection, connect

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

CHUNK = 1 << 20
KNOWN = "SELECT id FROM files UNION ALL SELECT id FROM parts"
log = structlog.get_logger()


class Chunks:
    """Two connections of its own, so that a large file does not keep answers from being written."""

    def __init__(self, url: str) -> None:
        self.writing, self.reading = Link(lambda: connect(url)), Link(lambda: connect(url))

    def begin(self, file_id: str) -> "ChunksWriting":
        self._delete(file_id)  # of a process that was killed while it wrote the same
        return ChunksWriting(self.writing, file_id)

    def open(self, file_id: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Raw(self, file_id), CHUNK))

    def read(self, file_id: str, offset: int, length: int) -> bytes:
        first, last = offset // CHUNK, (offset + length - 1) // CHUNK
        begin = offset - first * CHUNK

        def rows(connection: PostgresConnection) -> list[tuple[bytes]]:
            # The first chunk from `begin` on; of each no more than `length`.
            return connection.execute(
                "SELECT substring(data FROM CAST(CASE WHEN number = ? THEN ? ELSE 1 END AS int) FOR CAST(? AS int)) "
                "FROM chunks WHERE file = ? AND number BETWEEN ? AND ? ORDER BY number",
                (first, begin + 1, length, file_id, first, last),
            ).fetchall()

        return b"".join(row[0] for row in self.reading.run(rows))[:length] if length > 0 else b""

    def path(self, file_id: str) -> Path | None:
        return None

    def remove(self, file_id: str) -> None:
        """Not if its row is there: of a write whose COMMIT broke it is not known whether it was done."""
        try:
            self._delete(file_id)
        except StorageFailed as error:
            log.warning("a file's bytes are deleted at the next start", file=file_id, error=str(error))

    def _delete(self, file_id: str) -> None:
        sql = f"DELETE FROM chunks WHERE file = ? AND file NOT IN ({KNOWN})"
        self.writing.run(lambda connection: connection.execute(sql, (file_id,)))

    def sweep(self, known: Collection[str]) -> int:
        sql = f"DELETE FROM chunks WHERE file NOT IN ({KNOWN}) RETURNING file"
        return len(set(self.writing.run(lambda connection: connection.execute(sql).fetchall())))

    def close(self) -> None:
        self.writing.drop()
        self.reading.drop()


class ChunksWriting:
    def __init__(self, link: Link, file_id: str) -> None:
        self._link, self._file_id = link, file_id
        self._rest, self._number, self._kept = bytearray(), 0, False
        self.size = 0

    def write(self, data: bytes) -> None:
        self._rest += data
        self.size += len(data)
        while len(self._rest) >= CHUNK:
            self._put(bytes(self._rest[:CHUNK]))
            del self._rest[:CHUNK]

    def _put(self, data: bytes) -> None:
        # Sent again after a connection broke, a chunk is there once.
        sql = "INSERT INTO chunks (file, number, data) VALUES (?, ?, ?) ON CONFLICT (file, number) DO NOTHING"
        values = (self._file_id, self._number, data)
        self._link.run(lambda connection: connection.execute(sql, values))
        self._number += 1

    def keep(self) -> None:
        if self._rest:
            self._put(bytes(self._rest))
        self._kept = True

    def drop(self) -> None:
        if self._kept:
            return
        try:
            self._link.run(
                lambda connection: connection.execute("DELETE FROM chunks WHERE file = ?", (self._file_id,))
            )
        except StorageFailed as error:
            log.warning("a file's bytes are deleted at the next start", file=self._file_id, error=str(error))


class _Raw(io.RawIOBase):
    def __init__(self, chunks: Chunks, file_id: str) -> None:
        self._chunks, self._file_id, self._at = chunks, file_id, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        data = self._chunks.read(self._file_id, self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
