"""One batch whose lines are being sent: which line is next, and what is under way."""

import asyncio
from collections import deque

from llmendpoint_batch.core.records import Batch, Pending
from llmendpoint_batch.store import lines
from llmendpoint_batch.store.database import Database

AHEAD = 64
"""Lines whose places are read at a time; their texts are read as they are sent."""


class Running:
    def __init__(self, batch: Batch, database: Database) -> None:
        self.batch = batch
        self.broken: dict[int, int] = {}
        """Line -> attempts that broke."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._database = database
        self._ahead: deque[Pending] = deque()
        self._again: deque[Pending] = deque()
        self._last, self._exhausted = 0, False

    async def next_line(self) -> Pending | None:
        """None: no line waits, but some may be under way and come back."""
        if self._again:
            return self._again.popleft()
        if not self._ahead and not self._exhausted:
            rows = await self._database.read(lines.pending, self.batch.seq, self._last, AHEAD)
            self._ahead.extend(rows)
            self._last = rows[-1].number if rows else self._last
            self._exhausted = len(rows) < AHEAD
        return self._ahead.popleft() if self._ahead else None

    def come_back(self, line: Pending) -> None:
        """It is sent again, before lines that were not sent yet."""
        self._again.append(line)

    @property
    def done(self) -> bool:
        return self._exhausted and not (self._ahead or self._again or self.tasks)

    async def stop(self) -> None:
        """Ends what is under way. Answers that were received but not written are lost; their lines have no answer."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
