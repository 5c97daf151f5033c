"""Load and demand as gateways and engines write them (docs/contracts.md). What cannot be read raises a KeyError, TypeError,
ValueError or AttributeError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.autoscaling.demand import Load, Reading, Report
from ..core.circuit import Circuit


def parse_report(told: Mapping[str, Any], now: float) -> Report:
    """One endpoint as a gateway writes it at `now`. A load that it does not know is none, never zeros."""
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
    return None if told is None else parse_load(told, now - float(told["age"]))


def parse_load(told: Mapping[str, Any], read_at: float) -> Load:
    """What an engine says of itself."""
    return Load(
        running=int(told["running"]),
        waiting=int(told["waiting"]),
        kv_usage=float(told["kv_usage"]),
        max_num_seqs=int(told["max_num_seqs"]),
        read_at=read_at,
    )
