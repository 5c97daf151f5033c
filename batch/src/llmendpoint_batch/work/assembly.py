"""Writes the output and the error file of a batch from its answers. Written again, they are the same."""

from collections.abc import Iterator

from llmendpoint_batch.core.records import OUTPUT, Batch, File, output_file_id
from llmendpoint_batch.store import lines
from llmendpoint_batch.store.blobs import Blobs, write_lines
from llmendpoint_batch.store.connection import Connection


def write_files(
    connection: Connection, blobs: Blobs, batch: Batch, wall: int, age: float, keep_seconds: float
) -> list[File]:
    """Of the two, those that have a line. `age`: the service's own time."""
    made = []
    for good in (True, False):
        rows = lines.answers(connection, batch, good)
        first = next(rows, None)
        if first is None:
            continue
        file_id = output_file_id(batch.id, good)
        size = write_lines(blobs, file_id, _chain(first, rows))
        name = f"{batch.id}_{'output' if good else 'error'}.jsonl"
        expires = wall + int(keep_seconds)
        made.append(File(file_id, name, OUTPUT, size, wall, expires, age + keep_seconds))
    return made


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
