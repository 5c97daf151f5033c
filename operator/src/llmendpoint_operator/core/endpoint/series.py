"""Which Events are written now, and which are only counted.

As in Kubernetes' own clients, a repeated Event increments the count of the existing one, and each endpoint
has a bucket of tokens, of which a write takes one. Without a token an Event goes only to the log, and the
next write of the same series counts it. Warnings have a bucket of their own, so that many Normal Events
cannot suppress them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from .steps import Event

BURST = 25
REFILL_SECONDS = 10.0
"""Seconds after which a bucket gets one token back."""
REMEMBERED = 4096
"""Series kept in memory; the least recently used are forgotten first."""


@dataclass(slots=True)
class Bucket:
    """The tokens of one endpoint for one type of Event."""

    tokens: float = float(BURST)
    at: float = 0.0

    def take(self, now: float) -> bool:
        """Take a token if there is one. `now`: seconds of any steady clock."""
        self.tokens = min(float(BURST), self.tokens + (now - self.at) / REFILL_SECONDS)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


@dataclass(slots=True)
class Series:
    """One Event of one endpoint, and how often it occurred since it was last written."""

    uid: str
    event: Event
    pending: int = 0

    @property
    def suffix(self) -> str:
        """Suffix of the Event's name. It stays the same after a restart of the operator."""
        text = "\n".join((self.uid, self.event.type, self.event.reason, self.event.message))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(slots=True)
class SeriesBook:
    """The recent Events of all endpoints."""

    _series: OrderedDict[Hashable, Series] = field(default_factory=OrderedDict)
    _buckets: OrderedDict[Hashable, Bucket] = field(default_factory=OrderedDict)

    def say(self, uid: str, event: Event, now: float) -> Series | None:
        """Count the Event. Returns the series to write now, or None if the endpoint has no token left."""
        series = self._series.setdefault((uid, event), Series(uid, event))
        self._series.move_to_end((uid, event))
        series.pending += 1
        bucket = self._buckets.setdefault((uid, event.type), Bucket(at=now))
        self._buckets.move_to_end((uid, event.type))
        self._forget()
        return series if bucket.take(now) else None

    def _forget(self) -> None:
        for kept in (self._series, self._buckets):
            while len(kept) > REMEMBERED:
                kept.popitem(last=False)
