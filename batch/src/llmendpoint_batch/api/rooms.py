"""How many responses may be open at a time, and how many bytes of them are in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from llmendpoint_batch.core.bounds import OPEN_BYTES, OPEN_REQUESTS
from llmendpoint_batch.errors import Refused


class Held:
    """The bytes of one request."""

    def __init__(self, room: "Room") -> None:
        self._room, self.size = room, 0

    def more(self, size: int) -> None:
        """Raises Refused (429)."""
        if self._room.bytes + size > OPEN_BYTES:
            raise self._room.refused()
        self.size += size
        self._room.bytes += size

    def let_go(self) -> None:
        """They are in memory no more."""
        self._room.bytes -= self.size
        self.size = 0


class Room:
    def __init__(self) -> None:
        self._open, self.bytes = 0, 0

    @contextmanager
    def holding(self) -> Iterator[Held]:
        """A request that still comes: its bytes count as they are there, so that one that only names a large size takes none."""
        held = Held(self)
        try:
            yield held
        finally:
            self.bytes -= held.size

    @contextmanager
    def place(self) -> Iterator[None]:
        """A request that is whole. Raises Refused (429)."""
        if self._open >= OPEN_REQUESTS:
            raise self.refused()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    def refused(self) -> Refused:
        told = f"{self._open} responses are under way, with {self.bytes} bytes of requests. Try again later."
        return Refused(told, code="too_many_responses", status=429)
