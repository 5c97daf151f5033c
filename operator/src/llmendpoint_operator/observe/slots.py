"""How many questions go out at one time: a number in all, a number for each namespace, and namespaces take turns.

An engine that hangs holds its slot until its time-out. With a bound of its own for each namespace it holds up its
neighbours there and nobody else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class Slots:
    """`total` slots of one leader, `each` of them for one namespace. With `spare` a namespace may have more than `each` while
    more than `spare` slots are free. That is for questions that end soon: others then do not wait long."""

    def __init__(self, total: int, each: int, spare: int | None = None) -> None:
        self._total = total
        self._each = each
        self._spare = total if spare is None else spare
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Who waits, by namespace; the namespace whose turn is next comes first."""

    @contextlib.asynccontextmanager
    async def held(self, namespace: str) -> AsyncIterator[None]:
        """Wait for a slot, and hold it."""
        await self.enter(namespace)
        try:
            yield
        finally:
            self.leave(namespace)

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
        while (free := self._total - self._held.total()) > 0:
            each = self._each if free <= self._spare else self._total
            namespace = next((ns for ns in self._queues if self._held[ns] < each), None)
            if namespace is None:
                return
            queue = self._queues.pop(namespace)
            while queue and queue[0].cancelled():
                queue.popleft()
            if not queue:
                continue
            turn = queue.popleft()
            if queue:
                self._queues[namespace] = queue  # at the end: the others come first
            self._held[namespace] += 1
            turn.set_result(None)
