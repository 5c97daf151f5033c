"""Where the bytes of files are: in a folder beside SQLite, or in PostgreSQL. A file is there whole or not at all."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import BinaryIO, Protocol


class Writing(Protocol):
    """A file that is being written. Without `keep` nothing of it stays. Raises StorageFailed."""

    size: int

    def write(self, data: bytes) -> None: ...

    def keep(self) -> None:
        """The file is there under its id, also after a loss of power."""
        ...

    def drop(self) -> None:
        """Does nothing after `keep`."""
        ...


class Blobs(Protocol):
    """Each call blocks."""

    def begin(self, file_id: str) -> Writing: ...

    def open(self, file_id: str) -> BinaryIO: ...

    def read(self, file_id: str, offset: int, length: int) -> bytes:
        """Shorter at the file's end."""
        ...

    def path(self, file_id: str) -> Path | None:
        """Where the file system has it; None: nowhere."""
        ...

    def remove(self, file_id: str) -> None:
        """After its row."""
        ...

    def sweep(self, known: Collection[str]) -> int:
        """Deletes what a killed process left behind; returns how many files."""
        ...


def write_lines(blobs: Blobs, file_id: str, lines: Iterable[bytes]) -> int:
    """A file of these lines, each with its end added; returns its bytes."""
    writing = blobs.begin(file_id)
    try:
        for line in lines:
            writing.write(line)
            writing.write(b"\n")
        writing.keep()
    finally:
        writing.drop()
    return writing.size
