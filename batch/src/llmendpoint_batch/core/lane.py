"""The lines of one endpoint: whose turn it is, and how many may be under way.

Batches of one endpoint take turns, line by line. An endpoint that says that it has no room gets half as many lines, and
none for a while; each answer gives back one. So batches take the room that others leave, and an endpoint without a
replica is asked by one line at a time, while those of other endpoints go on.

A line that is refused again and again steps back for a while of its own, so that others are sent before it. If others were answered
between two of its refusals, it is the line that finds no room, not the endpoint: the lane does not wait for it.
"""

from collections import deque
from dataclasses import dataclass

FIRST_WAIT, LONGEST_OWN_WAIT = 0.5, 60.0
"""Seconds without a Retry-After: doubled from the first each time, up to the second."""
LONGEST_PAUSE = 60.0
"""Seconds that one line steps back at most, for its own sake: doubled from FIRST_WAIT each time."""
LEAST_WAIT = 0.1
"""Seconds, also where the Retry-After is 0: the same line would be refused thousands of times a second."""


@dataclass(slots=True)
class Refusals:
    """Of one line. `answers`: the lane's at the last of them."""

    count: int = 0
    answers: int = 0

    def again(self, answers: int) -> bool:
        """Count one more. True: others were answered since the one before."""
        alone = self.count > 0 and answers > self.answers
        self.count, self.answers = self.count + 1, answers
        return alone

    def pause(self, seconds: float | None, jitter: float) -> float:
        """Seconds that the line steps back; 0: it is the next one. `seconds`: as the endpoint says. `jitter`: 0 to 1."""
        if self.count < 2:
            return 0.0
        own = min(LONGEST_PAUSE, FIRST_WAIT * 2.0 ** min(self.count - 2, 16))
        return max(seconds or 0.0, own) * (1 + jitter / 4)


class Lane:
    """`most`: lines under way at a time. Times are seconds of any clock that does not jump. `batch`: any key."""

    def __init__(self, most: int) -> None:
        self.most, self.limit, self.in_flight = most, most, 0
        self._turns: deque[int] = deque()
        self._until = 0.0
        self._wait = FIRST_WAIT
        self.answers = 0
        """So many lines were answered."""

    @property
    def batches(self) -> tuple[int, ...]:
        """In the order of their turns."""
        return tuple(self._turns)

    def join(self, batch: int) -> None:
        if batch not in self._turns:
            self._turns.append(batch)

    def leave(self, batch: int) -> None:
        if batch in self._turns:
            self._turns.remove(batch)

    def turn(self) -> int | None:
        """The batch whose line is next; it goes to the end. None: no batch waits."""
        if not self._turns:
            return None
        self._turns.rotate(-1)
        return self._turns[-1]

    def seconds(self, now: float) -> float | None:
        """Until a line may be sent: 0 is now, None is not before one that is under way has ended."""
        if self.in_flight >= self.limit:
            return None
        return max(0.0, self._until - now)

    def sent(self) -> None:
        self.in_flight += 1

    def ended(self) -> None:
        self.in_flight -= 1

    def answered(self) -> None:
        """The endpoint did a line's work, whatever the answer says."""
        self.answers += 1
        self.limit = min(self.most, self.limit + 1)
        self._wait = FIRST_WAIT

    def busy(self, now: float, seconds: float | None, jitter: float) -> None:
        """The endpoint had no room. `seconds`: as it says. `jitter`: 0 to 1, so that several services do not come back
        together.

        Lines that were sent before the first such answer say the same, so that only one of them counts.
        """
        if seconds is None and now < self._until:
            return
        if now >= self._until:
            self.limit = max(1, self.limit // 2)
        wait = self._wait if seconds is None else max(seconds, LEAST_WAIT)
        self._until = max(self._until, now + wait * (1 + jitter / 4))
        if seconds is None:
            self._wait = min(LONGEST_OWN_WAIT, 2 * self._wait)
