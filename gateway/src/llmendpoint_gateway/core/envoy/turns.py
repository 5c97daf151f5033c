"""Large messages come one after another, so that what is received and not yet whole never fills the memory.

Each stream may send a small message at once. A larger one waits for its turn, which is given in the order of asking while
the sum of those under way is within the bound; one that is above the bound by itself comes alone.
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
        """Under way."""
        return sum(self._under_way.values())

    def ask(self, who: Hashable, size: int, go: Callable[[], None]) -> None:
        """`go` is called when it is their turn, at once where there is room. Nobody asks twice before `done`."""
        self._waiting.append((who, size, go))
        self._next()

    def done(self, who: Hashable) -> None:
        """The message has come, or never will; nothing where they have not asked."""
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
