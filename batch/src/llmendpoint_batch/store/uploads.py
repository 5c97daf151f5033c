"""Rows of uploads and their parts. As with files, a part's row is written after its bytes, and deleted before them."""

from collections.abc import Sequence

from llmendpoint_batch.core.bounds import MOST_PENDING_UPLOADS, MOST_UPLOAD_PARTS, MOST_UPLOADS
from llmendpoint_batch.core.records import File
from llmendpoint_batch.core.upload import no_room
from llmendpoint_batch.core.uploads import Part, Upload
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import files
from llmendpoint_batch.store.connection import Connection

COLUMNS = "id, status, filename, bytes, created_at, expires_at, deadline"


def create(connection: Connection, new: Upload, storage_bytes: int) -> None:
    """Raises Refused: no room, or too many."""
    if files.check_room(connection, storage_bytes) < new.bytes:
        raise no_room(storage_bytes)
    (kept,) = connection.execute("SELECT count(*) FROM uploads").fetchone()
    (pending,) = connection.execute("SELECT count(*) FROM uploads WHERE status = 'pending'").fetchone()
    if pending >= MOST_PENDING_UPLOADS or kept >= MOST_UPLOADS:
        told = (
            f"{pending} uploads are pending, and {MOST_PENDING_UPLOADS} is the most; {kept} are kept, and {MOST_UPLOADS} is the "
            "most. Complete or cancel some, or try again later."
        )
        raise Refused(told, code="too_many_uploads", status=429)
    connection.execute(
        f"INSERT INTO uploads ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (new.id, new.status, new.filename, new.bytes, new.created_at, new.expires_at, new.deadline),
    )


def get(connection: Connection, upload_id: str) -> Upload:
    """Raises Refused (404)."""
    row = connection.execute(f"SELECT {COLUMNS} FROM uploads WHERE id = ?", (upload_id,)).fetchone()
    if row is None:
        told = f"No such upload: {upload_id[:100]!r}."
        raise Refused(told, param="upload_id", code="upload_not_found", status=404)
    return Upload(*row)


def open_one(connection: Connection, upload_id: str) -> tuple[Upload, list[Part]]:
    """Raises Refused where it is not pending."""
    # Before its status: a reader of PostgreSQL sees what ends between the two, and must not take its parts for none.
    rows = connection.execute("SELECT id, bytes FROM parts WHERE upload = ?", (upload_id,)).fetchall()
    upload = get(connection, upload_id)
    if upload.status != "pending":
        told = f"The upload {upload_id} is {upload.status}. Only a pending one takes parts, or is completed or cancelled."
        raise Refused(told, param="upload_id", code="upload_not_pending")
    return upload, [Part(*row) for row in rows]


def add_part(connection: Connection, upload_id: str, part: Part, storage_bytes: int) -> None:
    """Raises Refused: another request took the room, or ended the upload."""
    upload, parts = open_one(connection, upload_id)
    if len(parts) >= MOST_UPLOAD_PARTS:
        told = f"The upload has {len(parts)} parts, and {MOST_UPLOAD_PARTS} is the most. Send larger ones."
        raise Refused(told, param="data", code="too_many_parts")
    if sum(one.bytes for one in parts) + part.bytes > upload.bytes:
        raise Refused("The parts together have more than the bytes of the upload.", param="data")
    if files.check_room(connection, storage_bytes) < part.bytes:
        raise no_room(storage_bytes)
    connection.execute(
        "INSERT INTO parts (id, upload, bytes) VALUES (?, ?, ?)", (part.id, upload_id, part.bytes)
    )


def in_order(upload: Upload, parts: Sequence[Part], ids: Sequence[str]) -> list[Part]:
    """The parts that were named. Raises Refused."""
    known = {part.id: part for part in parts}
    for at, part_id in enumerate(ids):
        if part_id not in known:
            told = f"part_ids[{at}] is no part of {upload.id}: {part_id[:100]!r}."
            raise Refused(told, param=f"part_ids[{at}]")
    chosen = [known[part_id] for part_id in ids]
    size = sum(part.bytes for part in chosen)
    if size != upload.bytes:
        told = f"The parts have {size} bytes together, and the upload was begun with {upload.bytes}."
        raise Refused(told, param="part_ids")
    return chosen


def complete(connection: Connection, upload_id: str, file: File) -> tuple[Upload, list[str]]:
    """The file's row and the upload's end, together; returns the ids of parts whose bytes are to go. Raises Refused if it
    has ended meanwhile."""
    open_one(connection, upload_id)
    files.add(connection, file)
    return _end(connection, upload_id, "completed", file.deadline)


def cancel(connection: Connection, upload_id: str, deadline: float) -> tuple[Upload, list[str]]:
    """A second cancel changes nothing. Raises Refused if it has ended otherwise."""
    upload = get(connection, upload_id)
    if upload.status == "cancelled":
        return upload, []
    open_one(connection, upload_id)
    return _end(connection, upload_id, "cancelled", deadline)


def _end(connection: Connection, upload_id: str, status: str, deadline: float) -> tuple[Upload, list[str]]:
    rows = connection.execute("DELETE FROM parts WHERE upload = ? RETURNING id", (upload_id,)).fetchall()
    sql = "UPDATE uploads SET status = ?, deadline = ? WHERE id = ?"
    connection.execute(sql, (status, deadline, upload_id))
    return get(connection, upload_id), [row[0] for row in rows]


def expire(connection: Connection, age: float, deadline: float, most: int) -> list[str]:
    """Ends pending uploads past their time; returns the ids of parts whose bytes are to go."""
    sql = "SELECT id FROM uploads WHERE status = 'pending' AND deadline <= ? LIMIT ?"
    old = list[str]()
    for (upload_id,) in connection.execute(sql, (age, most)).fetchall():
        old += _end(connection, upload_id, "expired", deadline)[1]
    return old


def forget_old(connection: Connection, age: float, most: int) -> int:
    """Deletes the rows of ended uploads past their retention; returns how many."""
    cursor = connection.execute(
        "DELETE FROM uploads WHERE id IN (SELECT id FROM uploads WHERE status <> 'pending' AND deadline <= ? LIMIT ?)",
        (age, most),
    )
    return cursor.rowcount
