"""What a transaction works with: a connection to SQLite or to PostgreSQL.

The SQL of this package is what both of them read. A value's place is `?`, and columns whose names are words of the
language (window, offset) are quoted.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Rows(Protocol):
    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    def execute(self, sql: str, values: Sequence[Any] = ..., /) -> Rows: ...

    def executemany(self, sql: str, values: Iterable[Sequence[Any]], /) -> Rows: ...

    def stream(self, sql: str, values: Sequence[Any], /) -> Iterator[Any]:
        """The rows one by one, also if all of them are more than the memory holds."""
        ...


class Backend(Protocol):
    """A database. Each call blocks."""

    @property
    def away(self) -> str:
        """Why it cannot be reached now; empty if it can be."""
        ...

    def write(self, do: Callable[[Connection], T], /) -> T:
        """All of what `do` writes, or nothing. Raises StorageFull, StorageAway or InUse. One call at a time."""
        ...

    def read(self, do: Callable[[Connection], T], /) -> T:
        """Raises StorageAway. One call at a time."""
        ...

    def read_long(self, do: Callable[[Connection], T], /) -> T:
        """Over a connection of its own, so that short reads do not wait for it."""
        ...

    def close(self) -> None: ...
