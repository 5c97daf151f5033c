"""`status.autoscaling`: the last decision, from which a new leader continues."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Event
from ..sentences import fitting
from ..times import parse_time, time_text
from .outcome import Outlook, Scaling
from .scene import Memory

Json = dict[str, Any]


def present_count(snapshot: Snapshot) -> int:
    """The present count: the last decision, or `spec.replicas` if that was changed since. Before the first
    decision, or after the status was lost, the replicas of the active revision."""
    endpoint = snapshot.endpoint
    asked = endpoint.spec.replicas if endpoint.spec else 1
    decided = endpoint.status.get("autoscaling")
    if decided:
        return int(decided["desiredReplicas"]) if decided.get("specReplicas", asked) == asked else asked
    deployment = snapshot.deployments.get(endpoint.status.get("activeRevision") or "")
    return asked if deployment is None else int(deployment.get("spec", {}).get("replicas", 1))


def first_memory(live: Mapping[str, Any], current: int, now: datetime) -> Memory:
    """The memory of a new leader: the present count as a recommendation, and the last change in the
    status."""
    at, before = parse_time(live.get("lastScaledAt")), live.get("previousReplicas")
    changes = () if at is None or before is None else ((at, current - int(before)),)
    return Memory(polled_at=now, active_at=now, recommendations=((now, current),), changes=changes)


def read_outlook(status: Mapping[str, Any]) -> Outlook | None:
    """The previous leader's outlook, from the conditions, which stay until there are figures again."""
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    scaling, blind = conditions.get("Scaling"), conditions.get("ScalingBlind")
    if scaling is None or blind is None:
        return None
    follows, partly = scaling["status"] == "True", blind["status"] != "True"
    return Outlook(follows, scaling["reason"], scaling["message"], blind.get("message", ""), partly)


def make_record(scaling: Scaling, live: Mapping[str, Any], asked: int) -> Json:
    """The new `status.autoscaling`. `live`: the present one. `asked`: spec.replicas."""
    if live.get("desiredReplicas") == scaling.replicas:
        return {**live, "specReplicas": asked}
    found: Json = {"desiredReplicas": scaling.replicas, "specReplicas": asked}
    change = scaling.change
    if change is None or change.after != scaling.replicas:
        return found
    return found | {
        "previousReplicas": change.before,
        "lastScaledAt": time_text(change.at),
        "reason": str(change.reason),
        "message": fitting(change.message),
    }


def event_of(scaling: Scaling, live: Mapping[str, Any]) -> Event | None:
    """The Event to write with the status that has a new count, else None."""
    change = scaling.change
    if change is None or change.after != scaling.replicas or live.get("desiredReplicas") == scaling.replicas:
        return None
    return change.event
