"""The load of endpoints and replicas now, from the `/demand` of all gateways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .objects import Object, full_name, status_of, wanted_of

BREAKERS = ("closed", "half-open", "open")
"""From good to bad. The worst state among all gateways is shown."""


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """`in_flight`: the gateways' requests at this replica. The other figures are the engine's own; None: unknown."""

    pod: str
    in_flight: int
    running: int | None = None
    queued: int | None = None
    max_num_seqs: int | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True)
class EndpointLoad:
    """`waiting`: requests that wait in the gateways for a replica. None: no gateway reports it."""

    endpoint: str
    wanted: int
    ready: int
    waiting: int | None
    in_flight: int | None
    breaker: str | None
    replicas: tuple[ReplicaLoad, ...]


def loads_of(endpoints: Iterable[Object], demands: Sequence[Mapping[str, Any]]) -> tuple[EndpointLoad, ...]:
    """The loads, sorted by name. `demands`: the `endpoints` of each gateway's first line."""
    return tuple(_load(endpoint, demands) for endpoint in sorted(endpoints, key=full_name))


def _load(endpoint: Object, demands: Sequence[Mapping[str, Any]]) -> EndpointLoad:
    told = [demand[full_name(endpoint)] for demand in demands if demand.get(full_name(endpoint))]
    states = [str((d.get("breaker") or {}).get("state")) for d in told if d.get("breaker")]
    return EndpointLoad(
        endpoint=full_name(endpoint),
        wanted=wanted_of(endpoint),
        ready=int(status_of(endpoint).get("readyReplicas", 0)),
        waiting=sum(int(d.get("waiting", 0)) for d in told) if told else None,
        in_flight=sum(int(d.get("in_flight", 0)) for d in told) if told else None,
        breaker=max(states, key=_badness) if states else None,
        replicas=_replicas(told),
    )


def _badness(state: str) -> int:
    return BREAKERS.index(state) if state in BREAKERS else 0


def _replicas(told: Sequence[Mapping[str, Any]]) -> tuple[ReplicaLoad, ...]:
    pods = sorted({pod for d in told for pod in d.get("replicas") or {}})
    return tuple(
        _replica(pod, [d["replicas"][pod] for d in told if pod in (d.get("replicas") or {})]) for pod in pods
    )


def _replica(pod: str, told: Sequence[Mapping[str, Any]]) -> ReplicaLoad:
    """Each gateway counts its own requests, so these are added up. Of the engine's figures the newest reading is taken."""
    in_flight = sum(int(r.get("in_flight", 0)) for r in told)
    readings = [r["load"] for r in told if r.get("load")]
    if not readings:
        return ReplicaLoad(pod, in_flight)
    load = min(readings, key=lambda reading: float(reading.get("age", 0)))
    return ReplicaLoad(
        pod,
        in_flight,
        load.get("running"),
        load.get("waiting"),
        load.get("max_num_seqs"),
        load.get("kv_usage"),
    )
