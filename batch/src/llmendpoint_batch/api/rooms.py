"""How many responses may be open at a time, and how many bytes of conversations they may hold in memory."""

from collections.abc import Iterator
from contextlib import contextmanager

from llmendpoint_batch.core.bounds import OPEN_BYTES, OPEN_REQUESTS
from llmendpoint_batch.errors import Refused


class Room:
    def __init__(self) -> None:
        self._open, self._bytes = 0, 0

    @contextmanager
    def taken(self, size: int) -> Iterator[None]:
        """Raises Refused (429)."""
        if self._open >= OPEN_REQUESTS or self._bytes + size > OPEN_BYTES:
            told = f"{self._open} responses are under way, with {self._bytes} bytes of requests. Try again later."
            raise Refused(told, code="too_many_responses", status=429)
        self._open += 1
        self._bytes += size
        try:
            yield
        finally:
            self._open -= 1
            self._bytes -= size

    @contextmanager
    def more(self, size: int) -> Iterator[None]:
        """Further bytes of one that is open. Raises Refused (429)."""
        with self.taken(size):
            self._open -= 1
            try:
                yield
            finally:
                self._open += 1
