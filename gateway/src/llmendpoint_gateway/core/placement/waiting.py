"""Requests that wait for a replica of an endpoint. Callers take turns; of one caller the highest priority goes first.

The bounds are in requests and in bytes, for all endpoints together and for each. A request that finds no room evicts
others. If the bound of all endpoints is reached, it evicts requests for other endpoints, else those of other callers
for its own endpoint. The holder of the most bytes loses first if bytes are exhausted, else the holder of the most
requests. No holder loses more than what it has beyond the endpoint, or the caller, of the new request. So each
endpoint, and each of its callers, has a fair share.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import Generic, Protocol, TypeVar

from llmendpoint_gateway.core.identity.priority import Priority
from llmendpoint_gateway.core.request.claim import Claim

T = TypeVar("T", bound=Hashable)

MOST_REQUESTS = 5_000
MOST_BYTES = 128 << 20
"""Of bodies; Envoy keeps them while their requests wait."""
BYTES_SHARE = 0.5
"""Share of MOST_BYTES that the requests for one endpoint may take. A single request may take more."""
MOST_REQUESTS_OF_ONE = 1_000
"""For one endpoint, unless its spec says otherwise."""


@dataclass(frozen=True, slots=True)
class Admission(Generic[T]):
    """`displaced`: the evicted requests. They are several if a large body takes the room of small ones."""

    admitted: bool
    displaced: tuple[T, ...] = ()


@dataclass(frozen=True, slots=True)
class _Victim(Generic[T]):
    """A request that may be evicted."""

    endpoint: str
    item: T
    claim: Claim


@dataclass(frozen=True, slots=True)
class _Need:
    """By how much a bound would be exceeded: in bytes, or by one request. Freeing bytes also frees a request."""

    bytes: int
    requests: int

    @classmethod
    def over(cls, bytes_over: int, requests_over: int) -> "_Need":
        """For the number of requests, a request evicts at most one other, even after the bound was lowered."""
        return cls(max(bytes_over, 0), min(max(requests_over, 0), 1))

    def __bool__(self) -> bool:
        return bool(self.bytes or self.requests)

    @property
    def amount(self) -> int:
        """How much of the exhausted bound is needed."""
        return self.bytes or self.requests

    def of(self, claim: Claim) -> int:
        """How much of that bound a request holds."""
        return claim.size if self.bytes else 1

    def held(self, holder: "_Holder[T]") -> int:
        """How much of that bound a caller or an endpoint holds."""
        return holder.bytes if self.bytes else holder.requests


class _Holder(Protocol[T]):
    """A caller's requests, or an endpoint's."""

    bytes: int

    @property
    def requests(self) -> int: ...

    def victims(self, need: _Need) -> Iterator[_Victim[T]]:
        """All of them, in the order of eviction."""


def _from_the_most(holders: Sequence[_Holder[T]], need: _Need) -> Iterator[_Victim[T]]:
    """One victim after another, each from the holder that then holds the most. Of equal holders the first loses."""
    heap = [(-need.held(h), number, h.victims(need)) for number, h in enumerate(holders)]
    heapify(heap)
    while heap:
        held, number, victims = heap[0]
        victim = next(victims, None)
        if victim is None:
            heappop(heap)
            continue
        yield victim
        heapreplace(heap, (held + need.of(victim.claim), number, victims))


def _enough(victims: Iterator[_Victim[T]], need: _Need) -> list[_Victim[T]] | None:
    """The first victims that together free what is needed; None if all of them are not enough."""
    found, freed = [], 0
    for victim in victims:
        found.append(victim)
        freed += need.of(victim.claim)
        if freed >= need.amount:
            return found
    return None


def _beyond(holders: Sequence[_Holder[T]], need: _Need, level: int) -> list[_Victim[T]] | None:
    """The requests to evict. None if the holders have too little beyond `level`, which is what the new request's own
    side would hold."""
    if sum(max(need.held(holder) - level, 0) for holder in holders) < need.amount:
        return None
    return _enough(_from_the_most(holders, need), need)


class _Line(Generic[T]):
    """The requests of one caller for one endpoint."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._bands: tuple[OrderedDict[T, Claim], ...] = tuple(OrderedDict() for _ in Priority)
        self.bytes = self.requests = 0

    def add(self, item: T, claim: Claim) -> None:
        self._bands[claim.priority][item] = claim
        self.requests += 1
        self.bytes += claim.size

    def remove(self, item: T, claim: Claim) -> None:
        del self._bands[claim.priority][item]
        self.requests -= 1
        self.bytes -= claim.size

    def first(self, skip: Callable[[T], bool]) -> T | None:
        return next((item for band in self._bands for item in band if not skip(item)), None)

    def victims(self, need: _Need) -> Iterator[_Victim[T]]:
        """The lowest priority first, and of it the newest first."""
        for band in reversed(self._bands):
            for item, claim in reversed(band.items()):
                yield _Victim(self._endpoint, item, claim)

    def below(self, priority: Priority, need: _Need) -> Iterator[_Victim[T]]:
        """The victims of a lower priority."""
        return (victim for victim in self.victims(need) if victim.claim.priority > priority)


class _Queue(Generic[T]):
    """The requests for one endpoint by caller; the caller whose turn it is comes first."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.claims: dict[T, Claim] = {}
        self.bytes = 0
        self._lines: OrderedDict[int, _Line[T]] = OrderedDict()

    @property
    def requests(self) -> int:
        return len(self.claims)

    def add(self, item: T, claim: Claim) -> None:
        self.claims[item] = claim
        self.bytes += claim.size
        if claim.caller not in self._lines:
            self._lines[claim.caller] = _Line(self._endpoint)
        self._lines[claim.caller].add(item, claim)

    def remove(self, item: T) -> Claim:
        claim = self.claims.pop(item)
        self.bytes -= claim.size
        line = self._lines[claim.caller]
        line.remove(item, claim)
        if not line.requests:
            del self._lines[claim.caller]
        return claim

    def first(self, skip: Callable[[T], bool]) -> T | None:
        found = (line.first(skip) for line in self._lines.values())
        return next((item for item in found if item is not None), None)

    def turn_over(self, caller: int) -> None:
        """The caller had its turn and goes to the end."""
        if caller in self._lines:
            self._lines.move_to_end(caller)

    def victims(self, need: _Need) -> Iterator[_Victim[T]]:
        """From the caller that holds the most; of equal ones from the one whose turn is last."""
        return _from_the_most(list(reversed(self._lines.values())), need)

    def make_way(self, claim: Claim, need: _Need) -> list[_Victim[T]] | None:
        """The requests to evict here: those of other callers, else those of its own caller with a lower priority."""
        line = self._lines.get(claim.caller)
        others = [other for other in reversed(self._lines.values()) if other is not line]
        found = _beyond(others, need, need.of(claim) + (need.held(line) if line else 0))
        if found is None and line is not None:
            found = _enough(line.below(claim.priority, need), need)
        return found


class Waiting(Generic[T]):
    """The waiting requests, by endpoint."""

    def __init__(self, most_requests: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self._queues: dict[str, _Queue[T]] = {}
        self._seconds: dict[str, float] = {}
        self.requests = self.bytes = 0

    def add(self, endpoint: str, item: T, claim: Claim, most: int = MOST_REQUESTS_OF_ONE) -> Admission[T]:
        """Add a request. At most `most` requests may wait for this endpoint."""
        victims = self._make_way(endpoint, claim, most)
        if victims is None:
            return Admission(False)
        for victim in victims:
            self.remove(victim.endpoint, victim.item)
        self._queues.setdefault(endpoint, _Queue(endpoint)).add(item, claim)
        self.requests += 1
        self.bytes += claim.size
        return Admission(True, tuple(victim.item for victim in victims))

    def first(self, endpoint: str, skip: Callable[[T], bool] = lambda _: False) -> T | None:
        """The request whose turn it is, among those that are not to be skipped."""
        queue = self._queues.get(endpoint)
        return queue.first(skip) if queue else None

    def items(self, endpoint: str) -> list[T]:
        """All requests that wait for the endpoint."""
        queue = self._queues.get(endpoint)
        return list(queue.claims) if queue else []

    def serve(self, endpoint: str, item: T, seconds: float) -> None:
        """The request gets its turn after it waited for `seconds`."""
        queue = self._queues[endpoint]
        queue.turn_over(self.remove(endpoint, item).caller)
        self._seconds[endpoint] = seconds

    def remove(self, endpoint: str, item: T) -> Claim:
        """Remove a request; KeyError if it does not wait."""
        queue = self._queues[endpoint]
        claim = queue.remove(item)
        self.requests -= 1
        self.bytes -= claim.size
        if not queue.claims:
            del self._queues[endpoint]
        return claim

    def seconds(self, endpoint: str) -> float | None:
        """How long the last served request had waited; None if none was served yet."""
        return self._seconds.get(endpoint)

    def forget(self, endpoint: str) -> None:
        """Forget a deleted endpoint, and how long requests waited for it."""
        self._seconds.pop(endpoint, None)

    def count(self, endpoint: str) -> int:
        """How many requests wait for this endpoint."""
        queue = self._queues.get(endpoint)
        return len(queue.claims) if queue else 0

    def __iter__(self) -> Iterator[str]:
        """The endpoints with waiting requests."""
        return iter(list(self._queues))

    def _make_way(self, endpoint: str, claim: Claim, most: int) -> list[_Victim[T]] | None:
        """The requests to evict; an empty list if there is room. None if there is no room and no request may be
        evicted."""
        queue = self._queues.get(endpoint) or _Queue[T](endpoint)
        share = max(int(self._most_bytes * BYTES_SHARE), claim.size)
        here = _Need.over(queue.bytes + claim.size - share, queue.requests + 1 - most)
        whole = _Need.over(
            self.bytes + claim.size - self._most_bytes, self.requests + 1 - self._most_requests
        )
        rest = _Need.over(whole.bytes - here.bytes, 0 if here else whole.requests)
        elsewhere: list[_Victim[T]] | None = []
        if rest:
            others = [other for other in self._queues.values() if other is not queue]
            after = here.bytes if rest.bytes else here.requests
            elsewhere = _beyond(others, rest, rest.held(queue) + rest.of(claim) - after)
        if elsewhere is None:
            here, elsewhere = _Need(max(here.bytes, whole.bytes), max(here.requests, whole.requests)), []
        own = queue.make_way(claim, here) if here else []
        return None if own is None else elsewhere + own
