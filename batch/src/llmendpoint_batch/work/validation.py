"""Reads a batch's input file: its lines become rows, or its faults end the batch."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import BinaryIO

from llmendpoint_batch.core import lines as reading
from llmendpoint_batch.core.bounds import MOST_ERRORS, Bounds
from llmendpoint_batch.core.lines import Fault, Line
from llmendpoint_batch.core.records import Pending

ROWS = 2_000
"""Lines between two transactions."""


@dataclass(slots=True)
class Check:
    """What is known of a file so far. `model`: of its first good line."""

    endpoint: str
    bounds: Bounds
    faults: list[Fault] = field(default_factory=list)
    model: str = ""
    count: int = 0
    _seen: dict[str, int] = field(default_factory=dict)

    def take(self, text: bytes, number: int, offset: int) -> Pending | None:
        """One line; None if it is at fault."""
        found = reading.read_line(text, number, self.endpoint)
        if isinstance(found, Line):
            self.model = self.model or found.model
            if (first := self._seen.setdefault(found.custom_id, number)) != number:
                found = reading.twice(found, number, first)
            elif found.model != self.model:
                found = reading.other_model(found, number, self.model)
        if isinstance(found, Fault):
            self.faults.append(found)
            return None
        return Pending(number, found.custom_id, offset, len(text))


def read_rows(file: BinaryIO, check: Check) -> Iterator[list[Pending]]:
    """Rows of the file's lines, ROWS at a time; `check` has the faults. Empty lines are none."""
    rows: list[Pending] = []
    for number, offset, text in _lines(file, check):
        if row := check.take(text, number, offset):
            rows.append(row)
        if len(rows) >= ROWS:
            yield rows
            rows = []
        if len(check.faults) >= MOST_ERRORS:
            return
    if not check.count and not check.faults:
        check.faults.append(reading.empty())
    yield rows


def _lines(file: BinaryIO, check: Check) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and text of each line."""
    most, offset, number = check.bounds.line_bytes, 0, 0
    with file:
        while text := file.readline(most + 2):
            number += 1
            whole = text.endswith(b"\n") or len(text) < most + 2
            stripped = text.strip(b" \t\r\n")
            if not whole or len(stripped) > most:
                check.faults.append(reading.too_long(number, most))
                return
            if stripped:
                check.count += 1
                if check.count > check.bounds.lines:
                    check.faults.append(reading.too_many(check.bounds.lines))
                    return
                yield number, offset + text.index(stripped), stripped
            offset += len(text)


def body_of(text: bytes, number: int, endpoint: str) -> bytes | Fault:
    """The request of a line that was good when its batch began."""
    found = reading.read_line(text, number, endpoint)
    return found.body if isinstance(found, Line) else replace(found, line=number)
