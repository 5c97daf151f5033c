"""The requests that wait for a place in the batch, in the order in which they start.

The scheduler takes the first one and no other: while that one finds no pages, nothing passes it.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from operator import attrgetter

from llmendpoint_server.core.sequence import Sequence

ORDER = attrgetter("order")


class WaitingQueue:
    """`max_requests`: how many may wait beside those for which the batch has a free place."""

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._waiting: list[Sequence] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        return iter(self._waiting)

    @property
    def first(self) -> Sequence:
        return self._waiting[0]

    def push(self, sequence: Sequence) -> None:
        insort(self._waiting, sequence, key=ORDER)

    def remove(self, sequence: Sequence) -> None:
        """Raises ValueError if it does not wait."""
        self._waiting.remove(sequence)

    def discard(self, sequence: Sequence) -> None:
        """`remove`, for a sequence that may not wait."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)

    def clear(self) -> None:
        self._waiting.clear()

    def full(self, places: int) -> str | None:
        """Why one more may not wait; None if it may. `places`: free ones in the batch. They count as room: with an empty
        engine a queue of 0 still serves."""
        if len(self._waiting) >= self._max_requests + places:
            return f"{len(self._waiting)} requests are waiting already"
        return None
