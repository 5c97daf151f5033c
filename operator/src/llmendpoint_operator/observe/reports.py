"""Load and demand as gateways and engines write them (docs/contribute/contracts.md). What cannot be read raises a KeyError, TypeError,
ValueError or AttributeError."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..core.endpoint.reported import LARGEST
from ..core.scaling.circuit import Circuit
from ..core.scaling.demand import Load, Reading, Report


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
    """A gateway passes on what an engine said: where that makes no sense, nothing is wrong with the gateway."""
    if told is None:
        return None
    read_at = now - float(told["age"])
    try:
        return parse_load(told, read_at)
    except ValueError:
        return None


def parse_load(told: Mapping[str, Any], read_at: float) -> Load:
    """What an engine says of itself."""
    return Load(
        running=int(parse_figure(told["running"])),
        waiting=int(parse_figure(told["waiting"])),
        kv_usage=parse_figure(told["kv_usage"]),
        max_num_seqs=int(parse_figure(told["max_num_seqs"])),
        read_at=read_at,
    )


def parse_figure(told: Any) -> float:
    """A count, a share or seconds as an engine gives them; ValueError for one that nothing can be computed with."""
    try:
        figure = float(told)
    except OverflowError as error:
        raise ValueError("the figure is too large") from error
    if not 0 <= figure <= LARGEST:  # NaN is not either
        raise ValueError(f"{figure} is negative, or too large")
    return figure
