"""What each replica said of its load, how often it is asked, and how long that holds. Time is the caller's, in seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BUSY_SECONDS = 10.0
"""After its last request a replica counts as busy for so long."""
BUSY_PERIOD, IDLE_PERIOD = 0.2, 5.0
MISSED = 3
"""Readings that may fail before the last good one is stale; but it holds for SHORTEST_SECONDS in any case, as a machine
that is short of time answers late."""
FIRST_LIMIT = 8
"""Requests that a replica gets before it was asked for the first time: all that wait for it are not to fall upon it."""
SHORTEST_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Load:
    """The answer to `GET /load` (docs/contribute/contracts.md). `kv_usage`: 0..1 of the pages that live requests hold."""

    running: int
    waiting: int
    kv_usage: float
    max_num_seqs: int
    outstanding_tokens: int


def parse_load(document: Any) -> Load | None:
    """None for what is no such answer: other engines have a `/load` of their own, or none."""
    if not isinstance(document, Mapping):
        return None
    names = ("running", "waiting", "max_num_seqs", "outstanding_tokens")
    counts: list[Any] = [document.get(name) for name in names]
    usage: Any = document.get("kv_usage")
    if not all(type(count) is int and count >= 0 for count in counts):
        return None
    if type(usage) not in (int, float) or not 0 <= usage <= 1 or not document["max_num_seqs"]:
        return None
    running, waiting, sequences, tokens = counts
    return Load(running, waiting, float(usage), sequences, tokens)


@dataclass(slots=True)
class _Replica:
    due: float
    asked: bool = False
    busy_until: float = 0.0
    load: Load | None = None
    told: bool = False
    read_at: float = 0.0
    stale_at: float = 0.0

    def period(self, now: float) -> float:
        return BUSY_PERIOD if now < self.busy_until else IDLE_PERIOD


class Loads:
    """By address. `touched` is told of every replica that gets a request, which costs a request next to nothing.

    `limits`: how many requests of this gateway a replica may have in flight; one of which nothing is known has none.
    """

    def __init__(self) -> None:
        self._replicas: dict[str, _Replica] = {}
        self.limits: dict[str, int] = {}
        self.touched: set[str] = set()

    def put(self, address: str, now: float, *, limited: bool = False) -> None:
        """This replica is there. `limited`: it may have a limit."""
        if address not in self._replicas:
            self._replicas[address] = _Replica(due=now)
            if limited:
                self.limits[address] = FIRST_LIMIT
        elif not limited:
            self.limits.pop(address, None)

    def drop(self, address: str) -> None:
        """It is gone."""
        self._replicas.pop(address, None)
        self.limits.pop(address, None)

    def due(self, now: float, busy: Iterable[str], most: int) -> list[str]:
        """Whom to ask now, the longest due first; each is not due again before its answer was noted. `busy` have
        requests in flight."""
        for address in {*busy, *self.touched}:
            if replica := self._replicas.get(address):
                replica.busy_until = now + BUSY_SECONDS
                replica.due = min(replica.due, now)
        self.touched.clear()
        due = [a for a, replica in self._replicas.items() if replica.due <= now and not replica.asked]
        due.sort(key=lambda address: self._replicas[address].due)
        for address in due[:most]:
            self._replicas[address].asked = True
        return due[:most]

    def note(self, address: str, load: Load | None, now: float) -> bool:
        """What it answered, None for what is no load; whether this changed what is known. An engine that has never told
        its load has no limit."""
        replica = self._asked(address, now)
        if replica is None:
            return False
        if load is None:
            if not replica.told:
                self.limits.pop(address, None)
            return False
        changed = load != replica.load
        replica.load, replica.read_at, replica.told = load, now, True
        replica.stale_at = now + max(MISSED * replica.period(now), SHORTEST_SECONDS)
        return changed

    def missed(self, address: str, now: float) -> None:
        """It did not answer: what is known of it holds until it is stale, and its limit for as long as it is there."""
        self._asked(address, now)

    def expire(self, now: float) -> list[str]:
        """Forget what is stale: unknown, which is not the same as none. The addresses of which nothing is known now; they
        keep their limits, or all that wait would fall upon a replica that has just stopped answering."""
        gone = [a for a, r in self._replicas.items() if r.load is not None and r.stale_at <= now]
        for address in gone:
            self._replicas[address].load = None
        return gone

    def _asked(self, address: str, now: float) -> _Replica | None:
        """Asking it is over; when it is to be asked again."""
        replica = self._replicas.get(address)
        if replica is not None:
            replica.asked, replica.due = False, now + replica.period(now)
        return replica

    def of(self, address: str) -> tuple[Load, float] | None:
        """The last reading that still holds, and when it was taken."""
        replica = self._replicas.get(address)
        return (replica.load, replica.read_at) if replica and replica.load else None
