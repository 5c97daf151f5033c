"""What `GET /demand` reports of each endpoint, and which of it is new to which reader. docs/contribute/contracts.md has
the JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmendpoint_gateway.core.endpoint.loads import Load


@dataclass(frozen=True, slots=True)
class Circuit:
    """The endpoint's breaker. `since`: RFC 3339. `requests` and `errors` are the figures that led to its state."""

    state: str
    since: str
    requests: int = 0
    errors: int = 0


@dataclass(frozen=True, slots=True)
class ReplicaDemand:
    """`load` None: unknown. `read_at`: seconds on the gateway's clock; a change of it alone is not news."""

    pod: str
    in_flight: int
    load: Load | None
    read_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class EndpointDemand:
    waiting: int
    in_flight: int
    circuit: Circuit
    replicas: tuple[ReplicaDemand, ...]


Demand = Mapping[str, EndpointDemand | None]
"""By endpoint key; None: the endpoint is deleted."""


class Reader:
    """One reader of the stream: what it received, and which endpoints may have news for it."""

    def __init__(self) -> None:
        self._told: dict[str, EndpointDemand] = {}
        self._pending: set[str] = set()

    @property
    def pending(self) -> frozenset[str]:
        return frozenset(self._pending)

    def touch(self, keys: Iterable[str]) -> None:
        self._pending.update(keys)

    def begins_to_wait(self, key: str) -> bool:
        """Whether the reader must get this endpoint's first waiting request at once: as far as it knows, none waits."""
        told = self._told.get(key)
        return told is None or told.waiting == 0

    def news(self, present: Demand) -> Demand:
        """The part of `present` that differs from what the reader received. From now on it counts as received."""
        self._pending.difference_update(present)
        news = {key: value for key, value in present.items() if self._told.get(key) != value}
        for key, value in news.items():
            if value is None:
                del self._told[key]
            else:
                self._told[key] = value
        return news


def as_json(demand: Demand, now: float) -> dict[str, Any]:
    return {key: value and _endpoint(value, now) for key, value in demand.items()}


def _endpoint(value: EndpointDemand, now: float) -> dict[str, Any]:
    circuit = value.circuit
    return {
        "waiting": value.waiting,
        "in_flight": value.in_flight,
        "breaker": {
            "state": circuit.state,
            "since": circuit.since,
            "requests": circuit.requests,
            "errors": circuit.errors,
        },
        "replicas": {replica.pod: _replica(replica, now) for replica in value.replicas},
    }


def _replica(replica: ReplicaDemand, now: float) -> dict[str, Any]:
    load = replica.load
    if load is None:
        return {"in_flight": replica.in_flight, "load": None}
    return {
        "in_flight": replica.in_flight,
        "load": {
            "running": load.running,
            "waiting": load.waiting,
            "kv_usage": load.kv_usage,
            "max_num_seqs": load.max_num_seqs,
            "outstanding_tokens": load.outstanding_tokens,
            "age": round(now - replica.read_at, 3),
        },
    }
