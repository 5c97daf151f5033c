"""Requests that wait for a replica: bands by priority, in a band one caller after the other, each first come, first served.

Bounded in number and in bytes, over all endpoints and for each. A request that finds no room displaces the newest request
of a lower band, of a caller that has more waiting, or of the endpoint for which the most wait, if its band is no higher; so
none of them fills the queue against the others.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MOST_REQUESTS = 5_000
MOST_BYTES = 128 << 20
"""Of bodies, which Envoy keeps meanwhile."""
BYTES_SHARE = 0.5
"""Of these, what the requests for one endpoint may take; a single one may take more."""
MOST_REQUESTS_OF_ONE = 1_000
"""Of one endpoint, where its spec does not say otherwise."""


class Priority(IntEnum):
    """The first is served first."""

    HIGH = 0
    NORMAL = 1
    LOW = 2


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request has of a queue: the size of its body in bytes, its caller (core/caller.py), and its band."""

    size: int = 0
    caller: int = 0
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class Admission(Generic[T]):
    """`displaced` waits no longer; None: there was room, or nobody to make way."""

    admitted: bool
    displaced: T | None = None


class _Queue(Generic[T]):
    """Of one endpoint."""

    def __init__(self) -> None:
        self.claims: dict[T, Claim] = {}
        self.bytes = 0
        self._bands: tuple[OrderedDict[int, OrderedDict[T, None]], ...] = tuple(
            OrderedDict() for _ in Priority
        )

    def add(self, item: T, claim: Claim) -> None:
        self.claims[item] = claim
        self.bytes += claim.size
        self._bands[claim.priority].setdefault(claim.caller, OrderedDict())[item] = None

    def remove(self, item: T) -> Claim:
        claim = self.claims.pop(item)
        self.bytes -= claim.size
        band = self._bands[claim.priority]
        items = band[claim.caller]
        del items[item]
        if not items:
            del band[claim.caller]
        return claim

    def first(self) -> T | None:
        for band in self._bands:
            if band:
                return next(iter(next(iter(band.values()))))
        return None

    def turn_over(self, claim: Claim) -> None:
        """The caller had its turn."""
        band = self._bands[claim.priority]
        if claim.caller in band:
            band.move_to_end(claim.caller)

    def lesser(self, claim: Claim) -> T | None:
        """Who is to make way for such a claim on this queue."""
        lowest = self._lowest()
        callers_own = len(self._bands[lowest].get(claim.caller, ()))
        if lowest == claim.priority and len(self._most(lowest)) <= callers_own + 1:
            return None
        return self.least(claim)

    def least(self, claim: Claim) -> T | None:
        """Who is the first to make way for it elsewhere: of the lowest band's busiest caller the newest, unless that band
        is a higher one."""
        lowest = self._lowest()
        return None if lowest < claim.priority else next(reversed(self._most(lowest)))

    def _lowest(self) -> Priority:
        return max(priority for priority in Priority if self._bands[priority])

    def _most(self, priority: Priority) -> OrderedDict[T, None]:
        return max(self._bands[priority].values(), key=len)


class Waiting(Generic[T]):
    """What waits, by endpoint."""

    def __init__(self, most_requests: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self._queues: dict[str, _Queue[T]] = {}
        self._seconds: dict[str, float] = {}
        self.requests = self.bytes = 0

    def add(self, endpoint: str, item: T, claim: Claim, most: int = MOST_REQUESTS_OF_ONE) -> Admission[T]:
        """`most` requests may wait for this endpoint."""
        displaced = None
        if not self._fits(endpoint, claim, most, None):
            found = self._lesser(endpoint, claim, most)
            if found is None or not self._fits(endpoint, claim, most, found):
                return Admission(False)
            self.remove(*found)
            displaced = found[1]
        self._queues.setdefault(endpoint, _Queue()).add(item, claim)
        self.requests += 1
        self.bytes += claim.size
        return Admission(True, displaced)

    def first(self, endpoint: str) -> T | None:
        """Whose turn it is."""
        queue = self._queues.get(endpoint)
        return queue.first() if queue else None

    def items(self, endpoint: str) -> list[T]:
        """All that wait for it."""
        queue = self._queues.get(endpoint)
        return list(queue.claims) if queue else []

    def serve(self, endpoint: str, item: T, seconds: float) -> None:
        """It has its turn, after so long."""
        queue = self._queues[endpoint]
        queue.turn_over(self.remove(endpoint, item))
        self._seconds[endpoint] = seconds

    def remove(self, endpoint: str, item: T) -> Claim:
        """It waits no longer; KeyError when it did not."""
        queue = self._queues[endpoint]
        claim = queue.remove(item)
        self.requests -= 1
        self.bytes -= claim.size
        if not queue.claims:
            del self._queues[endpoint]
        return claim

    def seconds(self, endpoint: str) -> float | None:
        """How long the last one that was served had waited; None: none was yet."""
        return self._seconds.get(endpoint)

    def keep(self, endpoints: Collection[str]) -> None:
        """Forget how long requests waited for all others."""
        self._seconds = {key: seconds for key, seconds in self._seconds.items() if key in endpoints}

    def count(self, endpoint: str) -> int:
        """How many wait for this endpoint."""
        queue = self._queues.get(endpoint)
        return len(queue.claims) if queue else 0

    def __iter__(self) -> Iterator[str]:
        """Endpoints that are waited for."""
        return iter(list(self._queues))

    def _fits(self, endpoint: str, claim: Claim, most: int, without: tuple[str, T] | None) -> bool:
        """Whether there is room for it, once `without` is gone."""
        requests, size = self.requests + 1, self.bytes + claim.size
        queue = self._queues.get(endpoint)
        own, own_size = (len(queue.claims), queue.bytes) if queue else (0, 0)
        own, own_size = own + 1, own_size + claim.size
        if without is not None:
            freed = self._queues[without[0]].claims[without[1]].size
            requests, size = requests - 1, size - freed
            if without[0] == endpoint:
                own, own_size = own - 1, own_size - freed
        return (
            requests <= self._most_requests
            and size <= self._most_bytes
            and own <= most
            and own_size <= max(self._most_bytes * BYTES_SHARE, claim.size)
        )

    def _lesser(self, endpoint: str, claim: Claim, most: int) -> tuple[str, T] | None:
        """Of the longest queue, where its own has room and is shorter; else, or with nobody there to make way, of its own."""
        own = self.count(endpoint)
        longest = max(self._queues, key=self.count, default=None)
        if longest is None:
            return None
        if own < most and own + 1 < self.count(longest):
            item = self._queues[longest].least(claim)
            if item is not None:
                return longest, item
        queue = self._queues.get(endpoint)
        item = queue.lesser(claim) if queue else None
        return None if item is None else (endpoint, item)
