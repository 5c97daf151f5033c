"""How long a request waits for a place in the batch, from measured lifetimes of requests. Retry-After follows from it.

`max_tokens` says little about the length of an answer: its default is the rest of the context. So it is only an upper
bound of the estimate.
"""

from __future__ import annotations

from collections import deque

MIN_RETRY_AFTER = 1.0
MAX_RETRY_AFTER = 60.0
_ENDS_KEPT = 64
_HALF_LIFE_SECONDS = 10.0


class Lives:
    """The mean lifetime of a request in the batch, and the mean time of a step.

    mean life = (request-seconds of running since the 64th last end) / (ends since then, at least 1)

    Request-seconds are the sum over steps of (running requests x the step's seconds), so requests that still run count
    with their present age. This is the maximum likelihood estimate of the mean of an exponential distribution when some
    lifetimes have not ended yet. Before the first end it is the sum of all ages.
    """

    def __init__(self) -> None:
        self._request_seconds = 0.0
        self._marks: deque[float] = deque([0.0], maxlen=_ENDS_KEPT + 1)
        """`_request_seconds` at the start, or at each of the last ends"""
        self._steps = 0.0
        self._seconds = 0.0

    def observe(self, running: int, seconds: float) -> None:
        """Record one step: how many requests ran, and how long it took in seconds."""
        seconds = max(seconds, 0.0)
        self._request_seconds += running * seconds
        keep = 0.5 ** (seconds / _HALF_LIFE_SECONDS)
        self._steps = self._steps * keep + 1
        self._seconds = self._seconds * keep + seconds

    def end(self) -> None:
        """Record that a running request has left the batch, for any reason."""
        self._marks.append(self._request_seconds)

    @property
    def mean_life(self) -> float:
        """Seconds."""
        return (self._request_seconds - self._marks[0]) / max(len(self._marks) - 1, 1)

    @property
    def step_seconds(self) -> float:
        """The mean time of a step; 0 until one was observed."""
        return self._seconds / self._steps if self._steps else 0.0


def place_wait(
    mean_life: float, running: int, fewest_steps: int, step_seconds: float, places: int = 1
) -> float:
    """Seconds until the batch has had so many free places, one for each of the `running` requests that ends.

    min(mean_life / running, fewest_steps x step_seconds) + (places - 1) x mean_life / running

    mean_life / running is the mean time between two ends: each running request ends once in a mean life. The first end
    has an upper bound: the request with the fewest steps left reaches its limit of tokens by then.
    """
    if not running or places < 1:
        return 0.0
    between = mean_life / running
    return min(between, fewest_steps * step_seconds) + (places - 1) * between


def retry_after(wait: float) -> float:
    """Seconds to send as Retry-After for a wait of so many."""
    return min(max(wait, MIN_RETRY_AFTER), MAX_RETRY_AFTER)
