"""When the first token was late last: how many requests shared how many replicas then.

One replica more makes it early again, and then nothing but this memory tells that the step back would make it late: a
constant load would swing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

REMEMBERED_SECONDS = 3600
"""What callers ask for changes with the hour; then a smaller number is tried again."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """Too many requests on so many replicas."""

    at: datetime
    requests: int
    replicas: int

    def least_for(self, requests: int) -> int:
        """Replicas on which so many requests are less crowded than it was then."""
        return requests * self.replicas // self.requests + 1

    def fades(self, now: datetime) -> bool:
        """Whether it is too long ago."""
        return (now - self.at).total_seconds() >= REMEMBERED_SECONDS
