"""Rows of files. Their bytes are elsewhere (store/blobs.py): a row is written after its bytes, and deleted before
them. So a row always has its bytes, and bytes without a row are left from a killed process."""

from collections.abc import Sequence

from llmendpoint_batch.core.bounds import MOST_FILES
from llmendpoint_batch.core.records import File
from llmendpoint_batch.core.status import ENDED, Status
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store.connection import Connection

COLUMNS = "id, filename, purpose, bytes, created_at, expires_at, deadline"
_UNFINISHED = f"status IN ({', '.join(repr(str(status)) for status in Status if status not in ENDED)})"


def add(connection: Connection, file: File) -> None:
    """Written again, a file of the same id takes the place of the first."""
    connection.execute(
        f"INSERT INTO files ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET "
        + ", ".join(f"{name} = excluded.{name}" for name in COLUMNS.split(", ")[1:]),
        (
            file.id,
            file.filename,
            file.purpose,
            file.bytes,
            file.created_at,
            file.expires_at,
            file.deadline,
        ),
    )


def get(connection: Connection, file_id: str) -> File:
    """Raises Refused (404)."""
    row = connection.execute(f"SELECT {COLUMNS} FROM files WHERE id = ?", (file_id,)).fetchone()
    if row is None:
        raise Refused(
            f"No such file: {file_id[:100]!r}. GET /v1/files lists what there is.",
            param="id",
            code="file_not_found",
            status=404,
        )
    return File(*row)


def listed(
    connection: Connection, purpose: str | None, after: str | None, limit: int, ascending: bool
) -> tuple[list[File], bool]:
    """A page, and whether more follow. Raises Refused if `after` is no file."""
    where, values = ["1 = 1"], list[object]()
    if purpose is not None:
        where.append("purpose = ?")
        values.append(purpose)
    if after is not None:
        where.append(f"seq {'>' if ascending else '<'} ?")
        values.append(_seq(connection, after))
    order = "ASC" if ascending else "DESC"
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM files WHERE {' AND '.join(where)} ORDER BY seq {order} LIMIT ?",
        (*values, limit + 1),
    ).fetchall()
    return [File(*row) for row in rows[:limit]], len(rows) > limit


def _seq(connection: Connection, file_id: str) -> int:
    row = connection.execute("SELECT seq FROM files WHERE id = ?", (file_id,)).fetchone()
    if row is None:
        raise Refused(f"after names no file: {file_id[:100]!r}.", param="after")
    return int(row[0])


def remove(connection: Connection, file_id: str) -> None:
    """Raises Refused if there is none, or if a batch still reads it."""
    get(connection, file_id)
    user = connection.execute(
        f"SELECT id FROM batches WHERE input_file_id = ? AND {_UNFINISHED} LIMIT 1", (file_id,)
    ).fetchone()
    if user is not None:
        told = f"The batch {user[0]} reads this file. Cancel it first, or wait for its end."
        raise Refused(told, param="id", code="file_in_use")
    connection.execute("DELETE FROM files WHERE id = ?", (file_id,))


def remove_old(connection: Connection, age: float, most: int) -> Sequence[str]:
    """Deletes the rows of files past their time, but not of those that a batch reads; returns their ids."""
    rows = connection.execute(
        "SELECT id FROM files WHERE deadline <= ? AND id NOT IN "
        f"(SELECT input_file_id FROM batches WHERE {_UNFINISHED}) LIMIT ?",
        (age, most),
    ).fetchall()
    if rows:
        connection.executemany("DELETE FROM files WHERE id = ?", rows)
    return [row[0] for row in rows]


def ids(connection: Connection) -> frozenset[str]:
    """Of all that has bytes: files, and parts of uploads."""
    sql = "SELECT id FROM files UNION ALL SELECT id FROM parts"
    return frozenset(row[0] for row in connection.execute(sql).fetchall())


def usage(connection: Connection) -> tuple[int, int]:
    """Number of files, and their bytes with those of parts of uploads."""
    count, size = connection.execute(
        "SELECT count(*), coalesce(sum(bytes), 0) + (SELECT coalesce(sum(bytes), 0) FROM parts) FROM files"
    ).fetchone()
    return int(count), int(size)


def check_room(connection: Connection, storage_bytes: int) -> int:
    """The bytes that uploads may still take. Raises Refused if there is no room for another file."""
    count, size = usage(connection)
    if count >= MOST_FILES:
        told = f"There are {count} files, and {MOST_FILES} is the most. Delete some (DELETE /v1/files/ID)."
        raise Refused(told, code="too_many_files")
    return storage_bytes - size
