"""Replicas in virtual time: they load, take so many requests at once, and drain. Requests wait first come, first served
in the gateway while every replica is full."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from tests.bench.day.trace import DAY_S, Arrival


@dataclass(frozen=True, slots=True)
class Engine:
    """As `llmendpoint-simulator` is told: seconds to load, to the first token and between tokens; sequences at once."""

    load_s: float = 90.0
    ttft_s: float = 0.25
    itl_s: float = 0.03
    sequences: int = 16


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a day: requests, those whose first token came after the limit or never, and the hours of all replicas."""

    requests: int
    missed: int
    replica_hours: float
    most: int
    changes: int

    @property
    def missed_share(self) -> float:
        return self.missed / self.requests

    def __add__(self, other: Outcome) -> Outcome:
        """Of both days."""
        return Outcome(
            self.requests + other.requests, self.missed + other.missed, self.replica_hours + other.replica_hours,
            max(self.most, other.most), self.changes + other.changes,
        )  # fmt: skip


@dataclass(eq=False, slots=True)
class Replica:
    """`answering` of its sequences are taken."""

    name: str
    since: float
    ready: bool = False
    leaving: bool = False
    answering: int = 0


class Policy(Protocol):
    """Looks every `every_s` seconds."""

    every_s: float

    def count(self, fleet: Fleet) -> int:
        """How many replicas there shall be."""


@dataclass
class Fleet:
    """`limit_s`: seconds to the first token after which a request counts as missed; those that wait longer than
    `patience_s` are refused."""

    engine: Engine
    limit_s: float
    patience_s: float
    first: int
    now: float = 0.0
    replicas: list[Replica] = field(default_factory=list)
    queue: deque[Arrival] = field(default_factory=deque)
    requests: int = 0
    missed: int = 0
    changes: int = 0
    most: int = 0
    _hours: float = 0.0
    _numbers: itertools.count[int] = field(default_factory=itertools.count)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)

    def run(self, day: Iterable[Arrival], policy: Policy) -> Outcome:
        """The whole day."""
        for _ in range(self.first):
            self.replicas.append(Replica(f"r{next(self._numbers)}", 0.0, ready=True))
        self.most = self.first
        self._later(policy.every_s, lambda: self._look(policy))
        for arrival in day:
            self._pass_until(arrival.at)
            self.now = arrival.at
            self.requests += 1
            self.queue.append(arrival)
            self._serve()
        self._pass_until(DAY_S)
        hours = self._hours + sum(DAY_S - replica.since for replica in self.replicas)
        return Outcome(self.requests, self.missed, hours / 3600, self.most, self.changes)

    @property
    def staying(self) -> list[Replica]:
        """Without those that drain."""
        return [replica for replica in self.replicas if not replica.leaving]

    def _later(self, delay: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + delay, next(self._numbers), what))

    def _pass_until(self, moment: float) -> None:
        while self._events and self._events[0][0] <= moment:
            self.now, _, what = heapq.heappop(self._events)
            what()

    def _look(self, policy: Policy) -> None:
        wanted, present = policy.count(self), self.staying
        self.changes += wanted != len(present)
        for _ in range(len(present), wanted):
            replica = Replica(f"r{next(self._numbers)}", self.now)
            self.replicas.append(replica)
            self._later(self.engine.load_s, functools.partial(self._loaded, replica))
        for replica in sorted(present, key=lambda r: (r.ready, r.answering))[: max(0, len(present) - wanted)]:
            replica.leaving = True
            self._end_if_empty(replica)
        self.most = max(self.most, len(self.replicas))
        self._later(policy.every_s, lambda: self._look(policy))

    def _loaded(self, replica: Replica) -> None:
        replica.ready = True
        self._serve()

    def _serve(self) -> None:
        """As many of those that wait as there is room for."""
        while self.queue:
            if self.now - self.queue[0].at > self.patience_s:
                self.queue.popleft()
                self.missed += 1
                continue
            free = [
                r for r in self.replicas
                if r.ready and not r.leaving and r.answering < self.engine.sequences
            ]  # fmt: skip
            if not free:
                return
            self._answer(min(free, key=lambda replica: replica.answering), self.queue.popleft())

    def _answer(self, replica: Replica, arrival: Arrival) -> None:
        self.missed += self.now - arrival.at + self.engine.ttft_s > self.limit_s
        replica.answering += 1
        takes = self.engine.ttft_s + self.engine.itl_s * (arrival.tokens - 1)
        self._later(takes, functools.partial(self._answered, replica))

    def _answered(self, replica: Replica) -> None:
        replica.answering -= 1
        self._end_if_empty(replica)
        self._serve()

    def _end_if_empty(self, replica: Replica) -> None:
        if replica.leaving and not replica.answering:
            self.replicas.remove(replica)
            self._hours += self.now - replica.since
