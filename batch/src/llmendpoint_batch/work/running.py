"""One batch whose lines are being sent: which line is next, and what is under way."""

import asyncio
import heapq
from collections import deque

from llmendpoint_batch.core.lane import Refusals
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
        self.refusals: dict[int, Refusals] = {}
        """Line -> how often it found no room."""
        self.tasks: set[asyncio.Task[None]] = set()
        self._database = database
        self._ahead: deque[Pending] = deque()
        self._again: deque[Pending] = deque()
        self._back: list[tuple[float, int, Pending]] = []
        """A heap of lines that have stepped back, with the time of each: at most AHEAD of them before one of them is next."""
        self._last, self._exhausted = 0, False

    async def next_line(self, now: float) -> Pending | None:
        """None: no line can be sent now, but some may be under way and come back, or have stepped back. `now`: as for `step_back`."""
        if self._again:
            return self._again.popleft()
        if self._back and (self._back[0][0] <= now or len(self._back) >= AHEAD):
            return heapq.heappop(self._back)[2]
        if not self._ahead and not self._exhausted:
            rows = await self._database.read(lines.pending, self.batch.seq, self._last, AHEAD)
            self._ahead.extend(rows)
            self._last = rows[-1].number if rows else self._last
            self._exhausted = len(rows) < AHEAD
        return self._ahead.popleft() if self._ahead else None

    def come_back(self, line: Pending) -> None:
        """It is sent again, before lines that were not sent yet."""
        self._again.append(line)

    def step_back(self, line: Pending, until: float) -> None:
        """It is sent again at this time, in seconds of a clock that does not jump, and others before it."""
        heapq.heappush(self._back, (until, line.number, line))

    @property
    def earliest(self) -> float | None:
        """When the first of those that stepped back may be sent; None: there is none."""
        return self._back[0][0] if self._back else None

    @property
    def done(self) -> bool:
        return self._exhausted and not (self._ahead or self._again or self._back or self.tasks)

    async def stop(self) -> None:
        """Ends what is under way. Answers that were received but not written are lost; their lines have no answer."""
        tasks = list(self.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
