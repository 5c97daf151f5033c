"""Bounds the number of concurrent questions, in total and per namespace. Namespaces take turns.

A question to an engine that hangs holds its slot until the time-out. Because of the bound per namespace it
delays only endpoints of the same namespace.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import AsyncIterator


class Slots:
    """`total` slots for one leader, `each` of them for one namespace. With `spare`, a namespace may exceed
    `each` while more than `spare` slots are free. That suits short questions: others then wait briefly."""

    def __init__(self, total: int, each: int, spare: int | None = None) -> None:
        self._total = total
        self._each = each
        self._spare = total if spare is None else spare
        self._held: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting questions by namespace, in the order of the namespaces' turns."""

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
        """Return the slot."""
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
                self._queues[namespace] = queue  # at the end, so that other namespaces come first
            self._held[namespace] += 1
            turn.set_result(None)
