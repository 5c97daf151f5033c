"""Large messages arrive one after another, so that incomplete messages never fill the memory.

Each stream may send a small message at any time. A larger one waits for its turn. Turns are given in the order of
asking while the sum of the messages in transit is within the bound. A message above the bound comes alone.
"""

from collections import deque
from collections.abc import Callable, Hashable

AT_ONCE = 48 << 20  # bytes


class Turns:
    """Shared by all connections of a process."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._under_way: dict[Hashable, int] = {}
        self._waiting: deque[tuple[Hashable, int, Callable[[], None]]] = deque()

    @property
    def bytes(self) -> int:
        """The sum of the messages that have their turn now."""
        return sum(self._under_way.values())

    def ask(self, who: Hashable, size: int, go: Callable[[], None]) -> None:
        """Call `go` when it is the stream's turn, immediately if there is room. A stream must not ask again before
        `done`."""
        self._waiting.append((who, size, go))
        self._next()

    def done(self, who: Hashable) -> None:
        """The message has arrived, or never will. No effect if this stream did not ask."""
        if self._under_way.pop(who, None) is None and self._waiting:
            self._waiting = deque(item for item in self._waiting if item[0] is not who)
        self._next()

    def _next(self) -> None:
        while self._waiting:
            who, size, go = self._waiting[0]
            if self._under_way and self.bytes + size > self._at_once:
                return
            self._waiting.popleft()
            self._under_way[who] = size
            go()
