"""Rows of batches, and their moves from status to status. Each function is part of one transaction."""

from collections.abc import Iterable
from dataclasses import replace

import msgspec

from llmendpoint_batch.core.bounds import MOST_BATCHES, MOST_UNFINISHED
from llmendpoint_batch.core.creation import Wanted
from llmendpoint_batch.core.lines import Fault
from llmendpoint_batch.core.records import INPUT, Batch
from llmendpoint_batch.core.status import ENDED, WRITING, Event, Status, may, moved
from llmendpoint_batch.errors import Refused
from llmendpoint_batch.store import files
from llmendpoint_batch.store.connection import Connection

COLUMNS = (
    'seq, id, status, endpoint, model, input_file_id, "window", metadata, created_at, expires_at, deadline, late, '
    "stamps, total, completed, failed, faults, output_file_id, error_file_id"
)
NAMES = COLUMNS.replace('"', "").split(", ")
_FAULTS = msgspec.json.Decoder(tuple[Fault, ...])
_PENDING, _FAILED = 0, 2
OPEN = tuple(status for status in Status if status not in ENDED)


def create(connection: Connection, batch_id: str, wanted: Wanted, wall: int, age: float) -> Batch:
    """Raises Refused: no such file, a file that is no input, or too many batches."""
    file = files.get(connection, wanted.input_file_id)
    if file.purpose != INPUT:
        told = f"The purpose of {file.id} is {file.purpose}. The input of a batch has the purpose {INPUT}."
        raise Refused(told, param="input_file_id")
    _check_room(connection)
    metadata = msgspec.json.encode(wanted.metadata).decode()
    row = connection.execute(
        "INSERT INTO batches (id, status, endpoint, model, input_file_id, \"window\", metadata, created_at, expires_at, "
        "deadline) VALUES (?, ?, ?, '', ?, ?, ?, ?, ?, ?) RETURNING seq",
        (
            batch_id, Status.VALIDATING, wanted.endpoint, wanted.input_file_id, wanted.window, metadata, wall,
            wall + wanted.seconds, age + wanted.seconds,
        ),
    ).fetchone()  # fmt: skip
    return by_seq(connection, row[0])


def _check_room(connection: Connection) -> None:
    (count,) = connection.execute("SELECT count(*) FROM batches").fetchone()
    if count >= MOST_BATCHES:
        told = (
            f"{count} batches are kept, and {MOST_BATCHES} is the most. The oldest go after their retention."
        )
        raise Refused(told, code="too_many_batches", status=429)
    if (count := len(unfinished(connection))) >= MOST_UNFINISHED:
        told = f"{count} batches are not finished, and {MOST_UNFINISHED} is the most. Try again later."
        raise Refused(told, code="too_many_batches", status=429)


def get(connection: Connection, batch_id: str) -> Batch:
    """Raises Refused (404)."""
    row = connection.execute(f"SELECT {COLUMNS} FROM batches WHERE id = ?", (batch_id,)).fetchone()
    if row is None:
        told = f"No such batch: {batch_id[:100]!r}. GET /v1/batches lists what there is."
        raise Refused(told, param="id", code="batch_not_found", status=404)
    return _batch(row)


def by_seq(connection: Connection, seq: int) -> Batch:
    return _batch(connection.execute(f"SELECT {COLUMNS} FROM batches WHERE seq = ?", (seq,)).fetchone())


def unfinished(connection: Connection) -> list[Batch]:
    """In the order in which they came."""
    marks = ", ".join("?" * len(OPEN))
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM batches WHERE status IN ({marks}) ORDER BY seq", OPEN
    ).fetchall()
    return [_batch(row) for row in rows]


def listed(connection: Connection, after: str | None, limit: int) -> tuple[list[Batch], bool]:
    """A page, the newest first, and whether more follow. Raises Refused if `after` is no batch."""
    before = 1 << 62
    if after is not None:
        row = connection.execute("SELECT seq FROM batches WHERE id = ?", (after,)).fetchone()
        if row is None:
            raise Refused(f"after names no batch: {after[:100]!r}.", param="after")
        before = int(row[0])
    rows = connection.execute(
        f"SELECT {COLUMNS} FROM batches WHERE seq < ? ORDER BY seq DESC LIMIT ?", (before, limit + 1)
    ).fetchall()
    return [_batch(row) for row in rows[:limit]], len(rows) > limit


def move(connection: Connection, batch: Batch, event: Event, wall: int, **columns: object) -> Batch:
    """`columns`: what else changes. Where no answer is taken any more, the lines that wait fail. Raises IllegalMove."""
    status = moved(batch.status, event)
    stamps = msgspec.json.encode(batch.stamps | {str(status): wall}).decode()
    changes = {"status": str(status), "stamps": stamps, **columns}
    connection.execute(
        f"UPDATE batches SET {', '.join(f'{name} = ?' for name in changes)} WHERE seq = ?",
        (*changes.values(), batch.seq),
    )
    if status in WRITING:
        _fail_the_rest(connection, batch)
    return by_seq(connection, batch.seq)


def _fail_the_rest(connection: Connection, batch: Batch) -> None:
    if batch.status is Status.VALIDATING:
        connection.execute("DELETE FROM lines WHERE batch = ?", (batch.seq,))  # read in part
        return
    cursor = connection.execute(
        "UPDATE lines SET state = ? WHERE batch = ? AND state = ?", (_FAILED, batch.seq, _PENDING)
    )
    connection.execute("UPDATE batches SET failed = failed + ? WHERE seq = ?", (cursor.rowcount, batch.seq))


def cancel(connection: Connection, batch_id: str, wall: int) -> Batch:
    """Raises Refused if there is nothing to cancel. A second cancel changes nothing."""
    batch = get(connection, batch_id)
    if batch.status in (Status.CANCELLING, Status.CANCELLED):
        return batch
    if not may(batch.status, Event.CANCEL):
        told = f"The batch {batch.id} is {batch.status}. Only a batch that is validating or in_progress can be cancelled."
        raise Refused(told, param="id", code="batch_not_cancellable")
    return move(connection, batch, Event.CANCEL, wall)


def expire(connection: Connection, age: float, wall: int) -> list[Batch]:
    """Those whose window has ended."""
    due = [b for b in unfinished(connection) if b.deadline <= age and may(b.status, Event.RAN_OUT)]
    return [move(connection, batch, Event.RAN_OUT, wall, late=1) for batch in due]


def reject(connection: Connection, seq: int, faults: Iterable[Fault], wall: int, delete_at: float) -> Batch:
    batch = by_seq(connection, seq)
    if not may(batch.status, Event.REJECTED):
        return batch  # it was cancelled meanwhile
    connection.execute("DELETE FROM lines WHERE batch = ?", (seq,))
    text = msgspec.json.encode(list(faults)).decode()
    return move(connection, batch, Event.REJECTED, wall, faults=text, deadline=delete_at)


def forget_old(connection: Connection, age: float, most: int) -> int:
    """Deletes the rows of ended batches past their retention, after their lines; returns how many."""
    marks = ", ".join("?" * len(ENDED))
    cursor = connection.execute(
        "DELETE FROM batches WHERE seq IN (SELECT seq FROM batches WHERE deadline <= ? AND "
        f"status IN ({marks}) AND NOT EXISTS (SELECT 1 FROM lines WHERE batch = batches.seq) LIMIT ?)",
        (age, *ENDED, most),
    )
    return cursor.rowcount


def _batch(row: tuple[object, ...]) -> Batch:
    values = dict(zip(NAMES, row, strict=True))
    typed = {
        "status": Status(str(values["status"])),
        "late": bool(values["late"]),
        "metadata": msgspec.json.decode(str(values["metadata"])),
        "stamps": msgspec.json.decode(str(values["stamps"])),
        "faults": _FAULTS.decode(str(values["faults"])),
    }
    return replace(Batch(**values), **typed)  # type: ignore[arg-type]  # a row has what its column has
