"""Remembers when the first token was last late: how many requests shared how many replicas.

One more replica makes the first token early again. Without this memory the scaler would remove that replica,
and the count would oscillate under a constant load.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

REMEMBERED_SECONDS = 3600
"""After this time fewer replicas are tried again, because the kind of requests changes over the day."""


@dataclass(frozen=True, slots=True)
class Crowd:
    """At time `at`, so many requests on so many replicas were too many."""

    at: datetime
    requests: int
    replicas: int

    def least_for(self, requests: int) -> int:
        """The smallest count with fewer requests per replica than at that time."""
        return requests * self.replicas // self.requests + 1

    def fades(self, now: datetime) -> bool:
        """Whether the memory is too old to count."""
        return (now - self.at).total_seconds() >= REMEMBERED_SECONDS
