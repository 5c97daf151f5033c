"""Who may ask now: so many at once in all, so many of each namespace, and namespaces take turns.

An engine that hangs holds its slot for as long as its prompt may take. With a bound of its own for each namespace it holds
up its neighbours there and nobody else.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque


class Slots:
    """Of one leader, `total` of them, and `each` for one namespace."""

    def __init__(self, total: int, each: int) -> None:
        self._total = total
        self._each = each
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by namespace; the namespace whose turn is next comes first."""

    async def enter(self, namespace: str) -> None:
        """Wait for a slot, and take it."""
        turn = asyncio.get_running_loop().create_future()
        self._queues.setdefault(namespace, deque()).append(turn)
        self._hand_out()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(namespace)
            raise

    def leave(self, namespace: str) -> None:
        """Give it back."""
        self._held[namespace] -= 1
        if not self._held[namespace]:
            del self._held[namespace]
        self._hand_out()

    def _hand_out(self) -> None:
        for namespace in list(self._queues):
            queue = self._queues[namespace]
            while queue and queue[0].cancelled():
                queue.popleft()
            if not queue:
                del self._queues[namespace]
        while self._held.total() < self._total:
            free = (ns for ns, queue in self._queues.items() if queue and self._held[ns] < self._each)
            namespace = next(free, "")
            if not namespace:
                return
            queue = self._queues.pop(namespace)
            turn = queue.popleft()
            if queue:
                self._queues[namespace] = queue  # at the end: the others come first
            if not turn.cancelled():
                self._held[namespace] += 1
                turn.set_result(None)
