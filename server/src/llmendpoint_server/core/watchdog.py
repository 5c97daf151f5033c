"""Whether the engine makes progress, from what it says and when: /health answers from this.

Two ways to be stuck, each for `limit` seconds: silence (an engine that runs beats at least once a second, and after
each of its steps), and beats without a step while requests are with it. A long prefill is neither: it is many steps.
Nothing counts before the engine is ready: the startup probe bounds a load. Pure: `now` is in seconds of any clock.
"""

from __future__ import annotations


class Watchdog:
    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._heard: float | None = None
        """None: the engine is not ready yet"""
        self._moved = 0.0
        self._steps = 0
        self._requests = 0

    def start(self, now: float) -> None:
        """The engine is ready."""
        self._heard = self._moved = now

    def hear(self, now: float) -> None:
        """Something came from the engine."""
        if self._heard is not None:
            self._heard = now

    def count(self, steps: int, requests: int, now: float) -> None:
        """The engine has made `steps` steps so far and has `requests` unfinished."""
        if steps != self._steps or not self._requests:
            self._moved = now
        self._steps, self._requests = steps, requests

    def stuck(self, now: float) -> str | None:
        """A sentence about it; None while there is progress."""
        if self._heard is None:
            return None
        if now - self._heard >= self._limit:
            return f"The engine process is stuck: it has said nothing for more than {self._limit:g} s."
        if self._requests and now - self._moved >= self._limit:
            return (
                f"The engine process is stuck: it beats, but has made no step for more than {self._limit:g} s "
                "though requests are with it."
            )
        return None
