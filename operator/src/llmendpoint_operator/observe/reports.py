"""Parses load and demand as gateways and engines write them (docs/contribute/contracts.md). Malformed input
raises KeyError, TypeError, ValueError or AttributeError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.endpoint.reported import parse_figure
from ..core.scaling.circuit import Circuit
from ..core.scaling.demand import Load, Reading, Report


def parse_report(told: Mapping[str, Any], now: float) -> Report:
    """A gateway's report on one endpoint at `now`. An unknown load is None, never zeros."""
    replicas = told.get("replicas") or {}
    return Report(
        waiting=int(told["waiting"]),
        replicas={
            str(pod): Reading(int(found["in_flight"]), _optional_load(found.get("load"), now))
            for pod, found in replicas.items()
        },
        circuit=_circuit(told.get("breaker")),
    )


def _circuit(told: Mapping[str, Any] | None) -> Circuit | None:
    if told is None:
        return None
    return Circuit(str(told["state"]), int(told.get("requests", 0)), int(told.get("errors", 0)))


def _optional_load(told: Mapping[str, Any] | None, now: float) -> Load | None:
    """An engine's load, passed on by a gateway. A malformed one is the engine's fault and counts as
    unknown."""
    if told is None:
        return None
    read_at = now - float(told["age"])
    try:
        return parse_load(told, read_at)
    except ValueError:
        return None


def parse_load(told: Mapping[str, Any], read_at: float) -> Load:
    """An engine's own report of its load."""
    return Load(
        running=int(parse_figure(told["running"])),
        waiting=int(parse_figure(told["waiting"])),
        kv_usage=parse_figure(told["kv_usage"]),
        max_num_seqs=int(parse_figure(told["max_num_seqs"])),
        read_at=read_at,
    )
