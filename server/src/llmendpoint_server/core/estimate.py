"""How long a caller who is refused should wait, from how fast requests ended and how old the running ones are.

What is asked for says little: where `max_tokens` is left out it is the rest of the context, and most answers end long
before. So the estimate is from lives of requests as they were seen, and what is asked for only bounds it.
"""

from __future__ import annotations

from collections import deque

MIN_RETRY_AFTER = 1.0
MAX_RETRY_AFTER = 60.0
_ENDS_KEPT = 64
_HALF_LIFE_SECONDS = 10.0


class Lives:
    """The mean life of a request in the batch, and the mean time of a step.

    mean life = (request-seconds of running since the 64th last end) / (ends since then, at least 1)

    Request-seconds are the sum over steps of (running requests x the step's seconds), so those that still run count with
    the age that they have: it is the estimate by maximum likelihood of the mean of an exponential distribution from
    lives of which some have not ended yet. Before the first end it is the sum of the ages so far.
    """

    def __init__(self) -> None:
        self._request_seconds = 0.0
        self._marks: deque[float] = deque([0.0], maxlen=_ENDS_KEPT + 1)
        """`_request_seconds` at the start, or at each of the last ends"""
        self._steps = 0.0
        self._seconds = 0.0

    def observe(self, running: int, seconds: float) -> None:
        """One step with so many running requests took so long."""
        seconds = max(seconds, 0.0)
        self._request_seconds += running * seconds
        keep = 0.5 ** (seconds / _HALF_LIFE_SECONDS)
        self._steps = self._steps * keep + 1
        self._seconds = self._seconds * keep + seconds

    def end(self) -> None:
        """A running request has left the batch, however it ended."""
        self._marks.append(self._request_seconds)

    @property
    def mean_life(self) -> float:
        """Seconds."""
        return (self._request_seconds - self._marks[0]) / max(len(self._marks) - 1, 1)

    @property
    def step_seconds(self) -> float:
        """0 until a step was observed."""
        return self._seconds / self._steps if self._steps else 0.0


def retry_after(mean_life: float, running: int, fewest_steps: int, step_seconds: float) -> float:
    """Seconds until a place in the queue is free, within [MIN_RETRY_AFTER, MAX_RETRY_AFTER]: that is when one of the
    `running` requests ends, because the first that waits takes its place in the batch.

    min(mean_life / running, fewest_steps x step_seconds)

    The first term: `running` requests, each of which ends once in a mean life whatever its age. The second: by then the
    one that has the fewest steps left up to its limit of tokens has ended for certain.
    """
    if not running:
        return MIN_RETRY_AFTER
    wait = min(mean_life / running, fewest_steps * step_seconds)
    return min(max(wait, MIN_RETRY_AFTER), MAX_RETRY_AFTER)
