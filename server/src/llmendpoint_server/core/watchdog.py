"""Whether the engine makes progress, by what it sends and when. /health answers from this.

An engine is stuck in two cases, each after `limit` seconds: it sends nothing (a running engine sends a beat at least
once a second, and after each step), or it sends beats without making a step while it has requests. A long prefill is
neither, because it has many steps. Nothing counts before the engine is ready: the startup probe bounds a load. Pure:
`now` is in seconds of any clock.
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
        """The engine has sent something."""
        if self._heard is not None:
            self._heard = now

    def count(self, steps: int, requests: int, now: float) -> None:
        """The engine has made `steps` steps so far and has `requests` unfinished."""
        if steps != self._steps or not self._requests:
            self._moved = now
        self._steps, self._requests = steps, requests

    def stuck(self, now: float) -> str | None:
        """A sentence that says how the engine is stuck; None while it makes progress."""
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
