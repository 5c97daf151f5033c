"""Rows of lines. An answer and its line's state are written together, so that a line has one answer or none."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from llmendpoint_batch.core.outcomes import Keep
from llmendpoint_batch.core.records import (
    Batch,
    File,
    Pending,
    answer_line,
    output_file_id,
    unanswered_line,
)
from llmendpoint_batch.core.status import ENDED, Event, Status, may
from llmendpoint_batch.store import batches, files
from llmendpoint_batch.store.connection import Connection

PENDING, GOOD, BAD = 0, 1, 2
"""The states of a line."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a line got. `batch`: its seq."""

    batch: int
    batch_id: str
    line: Pending
    kept: Keep


def add(connection: Connection, batch: Batch, rows: Sequence[Pending]) -> bool:
    """While a batch is validated. False: it no longer is."""
    if batches.by_seq(connection, batch.seq).status is not Status.VALIDATING:
        return False
    if rows:
        connection.executemany(
            'INSERT INTO lines (batch, number, custom_id, "offset", length) VALUES (?, ?, ?, ?, ?)',
            [(batch.seq, row.number, row.custom_id, row.offset, row.length) for row in rows],
        )
    return True


def forget(connection: Connection, batch: Batch) -> None:
    """Before a batch is validated (again)."""
    connection.execute("DELETE FROM lines WHERE batch = ?", (batch.seq,))


def accept(connection: Connection, seq: int, model: str, wall: int) -> Batch:
    """All lines of the file are there."""
    batch = batches.by_seq(connection, seq)
    if not may(batch.status, Event.ACCEPTED):
        return batch  # it was cancelled meanwhile
    (total,) = connection.execute("SELECT count(*) FROM lines WHERE batch = ?", (seq,)).fetchone()
    return batches.move(connection, batch, Event.ACCEPTED, wall, model=model, total=total)


def pending(connection: Connection, seq: int, after: int, most: int) -> list[Pending]:
    rows = connection.execute(
        'SELECT number, custom_id, "offset", length FROM lines WHERE batch = ? AND number > ? AND state = ? '
        "ORDER BY number LIMIT ?",
        (seq, after, PENDING, most),
    ).fetchall()
    return [Pending(*row) for row in rows]


def record(connection: Connection, answers: Iterable[Answered]) -> None:
    """A line that has an answer keeps it. So does one that was given up, because its batch was cancelled or expired."""
    for answer in answers:
        line, kept = answer.line, answer.kept
        text = answer_line(answer.batch_id, line.number, line.custom_id, kept.result)
        cursor = connection.execute(
            "UPDATE lines SET state = ?, answer = ? WHERE batch = ? AND number = ? AND state = ?",
            (GOOD if kept.good else BAD, text, answer.batch, line.number, PENDING),
        )
        if cursor.rowcount:
            column = "completed" if kept.good else "failed"
            connection.execute(
                f"UPDATE batches SET {column} = {column} + 1 WHERE seq = ?",
                (answer.batch,),
            )


def finish(connection: Connection, seq: int, wall: int) -> Batch:
    """Where no line of the batch waits any more, its files can be written."""
    batch = batches.by_seq(connection, seq)
    if batch.status is not Status.IN_PROGRESS or pending(connection, seq, -1, 1):
        return batch
    return batches.move(connection, batch, Event.ANSWERED, wall)


def answers(connection: Connection, batch: Batch, good: bool) -> Iterator[bytes]:
    """The lines of the output file, or of the error file, in the input's order."""
    end = Status.EXPIRED if batch.late else Status.CANCELLED
    rows = connection.stream(
        "SELECT number, custom_id, answer FROM lines WHERE batch = ? AND state = ? ORDER BY number",
        (batch.seq, GOOD if good else BAD),
    )
    for number, custom_id, answer in rows:
        yield unanswered_line(batch.id, number, custom_id, end) if answer is None else answer


def written(connection: Connection, batch: Batch, made: Sequence[File], wall: int, delete_at: float) -> Batch:
    """The files' rows and the batch's end, together."""
    for file in made:
        files.add(connection, file)
    names = {file.id for file in made}
    good, bad = (output_file_id(batch.id, good) for good in (True, False))
    return batches.move(
        connection,
        batches.by_seq(connection, batch.seq),
        Event.WRITTEN_LATE if batch.late else Event.WRITTEN,
        wall,
        output_file_id=good if good in names else None,
        error_file_id=bad if bad in names else None,
        deadline=delete_at,
    )


def clear(connection: Connection, most: int) -> int:
    """Deletes lines of batches that have ended: their answers are in files. Returns how many, `most` at a time."""
    cursor = connection.execute(
        "DELETE FROM lines WHERE id IN (SELECT id FROM lines WHERE batch IN "
        f"(SELECT seq FROM batches WHERE status IN ({', '.join('?' * len(ENDED))})) LIMIT ?)",
        (*ENDED, most),
    )
    return cursor.rowcount
