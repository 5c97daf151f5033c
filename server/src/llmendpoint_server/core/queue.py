"""The sequences that wait for a place in the batch: their order, their bounds, their deadlines.

The order is by (arrival - head start), where a class of priority is worth AGING_SECONDS. So a request goes before all
those of a lower class that have waited for less than that, and requests of one class keep their order. No request is
passed by one that came more than 2 x AGING_SECONDS after it (HIGH passes LOW), whatever arrives. Requests that run are
preempted in the reverse order.

When a bound is reached, a newcomer of another class displaces LOW requests: the last ones that have not begun, and of them
only those that would start after it. So LOW ones that have waited for long enough keep their place.

The first one that is ready starts and no other: while that one finds no pages, nothing passes it. Pure: all times are
arguments.
"""

from __future__ import annotations

import math
from bisect import bisect, insort
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Generic, Protocol, TypeVar

from llmendpoint_server.core.request import Priority

AGING_SECONDS = 30.0
_HEAD_START = {Priority.HIGH: AGING_SECONDS, Priority.NORMAL: 0.0, Priority.LOW: -AGING_SECONDS}

Order = tuple[float, int]
ORDER = attrgetter("order")


class Urgent(Protocol):
    """What a request says about its place in the queue; see `Request`."""

    @property
    def id(self) -> str: ...
    @property
    def arrival(self) -> float: ...
    @property
    def priority(self) -> Priority: ...
    @property
    def deadline(self) -> float | None: ...


def order_of(request: Urgent, number: int) -> Order:
    """What requests are sorted by. `number` decides between those that came at the same time."""
    return request.arrival - _HEAD_START[request.priority], number


class Waiting(Protocol):
    """What may wait. `begun`: it has run, and was preempted, or another answer of its request has begun. `ready`: it may
    start. `due`: tokens that are computed before its next one is sampled."""

    @property
    def request(self) -> Urgent: ...
    @property
    def order(self) -> Order: ...
    @property
    def begun(self) -> bool: ...
    @property
    def ready(self) -> bool: ...
    @property
    def due(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Full:
    """A bound is reached. `leave_first`: how many sequences must leave the queue, at their mean length."""

    why: str
    leave_first: int


W = TypeVar("W", bound=Waiting)


class WaitingQueue(Generic[W]):
    """`max_requests`: how many sequences may wait beside those for which the batch has a free place. `max_tokens`: how many
    tokens they may have together. One request may wait alone, whatever its length, and however many answers it asks for if
    the first can begin."""

    def __init__(self, max_requests: int, max_tokens: int) -> None:
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._waiting: list[W] = []
        self._soonest = math.inf
        """no deadline of a waiting request is before this time"""

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[W]:
        return iter(self._waiting)

    @property
    def first(self) -> W | None:
        """The one that starts next."""
        return next((one for one in self._waiting if one.ready), None)

    @property
    def ready(self) -> int:
        return sum(one.ready for one in self._waiting)

    @property
    def tokens(self) -> int:
        return sum(one.due for one in self._waiting)

    def push(self, one: W) -> None:
        insort(self._waiting, one, key=ORDER)
        if one.request.deadline is not None:
            self._soonest = min(self._soonest, one.request.deadline)

    def remove(self, one: W) -> None:
        """Raises ValueError if it does not wait."""
        self._waiting.remove(one)

    def discard(self, one: W) -> None:
        """`remove`, for one that may not wait."""
        if one in self._waiting:
            self._waiting.remove(one)

    def clear(self) -> None:
        self._waiting.clear()

    def full(self, places: int, count: int = 1) -> Full | None:
        """Why so many more sequences may not wait; None if they may. `places`: free ones in the batch. They count as room:
        with an empty engine a queue of 0 still serves."""
        waiting = len(self._waiting)
        excess = self._too_many(waiting, count, places)
        if not excess:
            return None
        asked = "" if count == 1 else f", and this request is for {count} answers"
        why = (
            f"{waiting} requests are waiting already{asked}; the limit is {self._max_requests} "
            "(--max-queued-requests)"
        )
        return Full(why, max(min(excess, waiting), 1))

    def _too_many(self, waiting: int, count: int, places: int) -> int:
        """How many of so many waiting sequences would have to leave for `count` more."""
        return 0 if places and not waiting else max(waiting + count - self._max_requests - places, 0)

    def too_long(self, tokens: int) -> Full | None:
        """Why so many more tokens may not wait; None if they may."""
        waiting = self.tokens
        excess = waiting + tokens - self._max_tokens
        if not self._waiting or excess <= 0:
            return None
        why = (
            f"{waiting} tokens of prompts are waiting already, and this request has {tokens}; the limit is "
            f"{self._max_tokens} (--max-queued-tokens)"
        )
        return Full(why, min(math.ceil(excess * len(self._waiting) / waiting), len(self._waiting)))

    def displaced_by(self, one: W, count: int, tokens: int, places: int) -> list[W]:
        """The LOW sequences that leave so that `count` more, of which `one` is the first, may wait with so many tokens. Whole
        requests leave, the last one first. Empty if that would not be enough."""
        if one.request.priority is Priority.LOW:
            return []
        waiting, held = len(self._waiting), self.tokens
        gone: list[W] = []
        last = [other for other in reversed(self._waiting) if _displaceable(other, one.order)]
        for _, group in groupby(last, key=lambda other: other.request.id):
            leaving = list(group)
            gone += leaving
            waiting, held = waiting - len(leaving), held - sum(other.due for other in leaving)
            if not self._too_many(waiting, count, places) and (
                not waiting or held + tokens <= self._max_tokens
            ):
                return gone
        return []

    def ahead(self, order: Order) -> tuple[int, int]:
        """How many sequences start before one with this order, and their tokens."""
        before = self._waiting[: bisect(self._waiting, order, key=ORDER)]
        return len(before), sum(one.due for one in before)

    def expired(self, now: float) -> list[W]:
        """Those that have not begun, and whose deadline has passed. They stay in the queue."""
        if now < self._soonest:
            return []
        fresh = [one for one in self._waiting if one.request.deadline is not None and not one.begun]
        self._soonest = min((_deadline(one) for one in fresh if _deadline(one) > now), default=math.inf)
        return [one for one in fresh if _deadline(one) <= now]


def _displaceable(one: Waiting, order: Order) -> bool:
    return one.request.priority is Priority.LOW and not one.begun and one.order > order


def _deadline(one: Waiting) -> float:
    return math.inf if one.request.deadline is None else one.request.deadline
