"""The load that each replica reported, when to ask it again, and how long a reading is valid. The time is an argument,
in seconds."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

BUSY_SECONDS = 10.0
"""A replica counts as busy for this time after its last request."""
BUSY_PERIOD, IDLE_PERIOD = 0.2, 5.0
MISSED = 3
"""After this many failed readings the last good one is stale. It is valid for SHORTEST_SECONDS at least, because an
overloaded machine answers late."""
FIRST_LIMIT = 8
"""A new replica's limit until its first reading. It keeps the waiting requests from all going to that replica."""
SHORTEST_SECONDS = 2.0
MOST_A_SECOND = 2000
"""Readings. One takes about 0.05 ms of the picker's CPU (`make bench-tables`). If more replicas are busy than can be read
every BUSY_PERIOD, each is read later, the longest due first, and readings are valid for longer."""
LAG_FADES = 0.5
"""Seconds that the lag loses in a second: after a moment in which nothing could be read, answers need time to arrive."""
MOST_ADAPTERS = 256
"""Of one replica, that are read."""


@dataclass(frozen=True, slots=True)
class Load:
    """The answer to `GET /load` (docs/contribute/contracts.md). `kv_usage`: share 0..1 of the pages that live requests
    hold. `adapters`: names of the LoRA adapters that the replica has."""

    running: int
    waiting: int
    kv_usage: float
    max_num_seqs: int
    outstanding_tokens: int
    adapters: frozenset[str] = frozenset()


def parse_load(document: Any) -> Load | None:
    """None if the document has another shape: other engines have their own `/load`, or none."""
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
    return Load(running, waiting, float(usage), sequences, tokens, _adapters(document.get("adapters")))


def _adapters(listed: Any) -> frozenset[str]:
    """An engine without adapters lists none, or has no list."""
    names = listed[:MOST_ADAPTERS] if isinstance(listed, list) else []
    return frozenset(name for name in names if isinstance(name, str))


@dataclass(slots=True)
class _Replica:
    due: float
    asked: bool = False
    busy_until: float = 0.0
    load: Load | None = None
    told: bool = False
    read_at: float = 0.0
    stale_at: float = 0.0
    adapters: frozenset[str] = frozenset()

    def period(self, now: float) -> float:
        return BUSY_PERIOD if now < self.busy_until else IDLE_PERIOD


class Loads:
    """Loads by replica address. Each request adds its replica to `touched`, which costs almost no time.

    `limits`: address -> how many requests of this gateway pod the replica may have in flight. An absent address has no
    limit. `lag`: by how many seconds readings are late.
    """

    def __init__(self) -> None:
        self._replicas: dict[str, _Replica] = {}
        self.lag = self._looked_at = 0.0
        self.limits: dict[str, int] = {}
        self.touched: set[str] = set()

    def put(self, address: str, now: float, *, limited: bool = False) -> None:
        """Add a replica. `limited`: it may have a limit, and starts with FIRST_LIMIT."""
        if address not in self._replicas:
            self._replicas[address] = _Replica(due=now)
            if limited:
                self.limits[address] = FIRST_LIMIT
        elif not limited:
            self.limits.pop(address, None)

    def drop(self, address: str) -> None:
        """Forget a replica."""
        self._replicas.pop(address, None)
        self.limits.pop(address, None)

    def due(self, now: float, busy: Iterable[str], most: int) -> list[str]:
        """The addresses to ask now, at most `most`, the longest due first. `busy`: replicas with requests in flight.

        An address is not due again until its answer was noted or missed.
        """
        for address in {*busy, *self.touched}:
            if replica := self._replicas.get(address):
                replica.busy_until = now + BUSY_SECONDS
                replica.due = min(replica.due, now)
        self.touched.clear()
        due = [a for a, replica in self._replicas.items() if replica.due <= now and not replica.asked]
        due.sort(key=lambda address: self._replicas[address].due)
        self._note_lag(now - self._replicas[due[0]].due - BUSY_PERIOD if due else 0.0, now)
        for address in due[:most]:
            self._replicas[address].asked = True
        return due[:most]

    def _note_lag(self, late: float, now: float) -> None:
        """`late`: the longest that a replica waits for its reading beyond what the turns themselves take."""
        faded = self.lag - LAG_FADES * (now - self._looked_at)
        self.lag, self._looked_at = max(late, faded, 0.0), now

    def note(self, address: str, load: Load | None, now: float) -> bool:
        """Store an answer; None is an answer that is not a load. Returns whether the known load changed.

        An engine that never reported a load has no limit.
        """
        replica = self._asked(address, now)
        if replica is None:
            return False
        if load is None:
            if not replica.told:
                self.limits.pop(address, None)
            return False
        changed = load != replica.load
        replica.load, replica.read_at, replica.told = load, now, True
        replica.adapters = load.adapters
        replica.stale_at = now + max(MISSED * replica.period(now), SHORTEST_SECONDS)
        return changed

    def missed(self, address: str, now: float) -> None:
        """The replica did not answer. Its last reading holds until it is stale, and its limit until the replica is
        dropped."""
        self._asked(address, now)

    def expire(self, now: float) -> list[str]:
        """Forget stale readings, and return their addresses. Their load is now unknown, which does not mean idle. If
        readings are late, the next ones are too, so all are valid for longer.

        They keep their limits. Otherwise all waiting requests would go to a replica that just stopped answering.
        """
        before = now - MISSED * self.lag
        gone = [a for a, r in self._replicas.items() if r.load is not None and r.stale_at <= before]
        for address in gone:
            self._replicas[address].load = None
        return gone

    def _asked(self, address: str, now: float) -> _Replica | None:
        """End the current reading and set when the next one is due. None for an unknown address."""
        replica = self._replicas.get(address)
        if replica is not None:
            replica.asked, replica.due = False, now + replica.period(now)
        return replica

    def holds(self, address: str, adapter: str) -> bool:
        """Whether the replica last said that it has this adapter. A stale reading counts too: only a change of the spec or
        a restart takes an adapter away, and a replica that restarts is dropped."""
        replica = self._replicas.get(address)
        return replica is not None and adapter in replica.adapters

    def of(self, address: str) -> tuple[Load, float] | None:
        """The last valid reading, and when it was taken; None if there is none."""
        replica = self._replicas.get(address)
        return (replica.load, replica.read_at) if replica and replica.load else None
