"""Reads API objects, which are plain JSON. Any part may be missing until another program writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

Object = Mapping[str, Any]


def name_of(thing: Object) -> str:
    """metadata.name."""
    return str(thing["metadata"]["name"])


def namespace_of(thing: Object) -> str:
    """metadata.namespace."""
    return str(thing["metadata"].get("namespace", ""))


def full_name(thing: Object) -> str:
    """`namespace/name`."""
    return f"{namespace_of(thing)}/{name_of(thing)}"


def label_of(thing: Object, label: str) -> str | None:
    """A label's value; None if the object lacks the label."""
    found = (thing["metadata"].get("labels") or {}).get(label)
    return None if found is None else str(found)


def status_of(thing: Object) -> Object:
    """The status; empty before the first one is written."""
    found: Object = thing.get("status") or {}
    return found


def rollout_of(endpoint: Object) -> Object:
    """status.rollout; empty if there was none."""
    found: Object = status_of(endpoint).get("rollout") or {}
    return found


def rejection_of(endpoint: Object) -> Object:
    """status.rejected; empty if nothing is rejected."""
    found: Object = status_of(endpoint).get("rejected") or {}
    return found


def wanted_of(endpoint: Object) -> int:
    """The wanted number of replicas: that of autoscaling, else that of the spec."""
    scaled: Object = status_of(endpoint).get("autoscaling") or {}
    return int(scaled.get("desiredReplicas", endpoint["spec"].get("replicas", 1)))


def conditions_of(thing: Object) -> dict[str, Object]:
    """Conditions by type."""
    found: Iterable[Object] = status_of(thing).get("conditions") or ()
    return {str(condition["type"]): condition for condition in found}


def is_true(condition: Object | None) -> bool:
    """Whether a condition is true; a missing one is not."""
    return bool(condition and condition.get("status") == "True")


def reason_text(condition: Object) -> str:
    """`Reason: message`, for conditions and other objects that have both."""
    reason, message = str(condition.get("reason", "")), str(condition.get("message", ""))
    return f"{reason}: {message}" if reason and message else reason or message


def is_observed(endpoint: Object) -> bool:
    """Whether the status describes the current spec."""
    observed, generation = (
        status_of(endpoint).get("observedGeneration"),
        endpoint["metadata"].get("generation"),
    )
    return observed is not None and bool(observed == generation)


def age_text(since: object, now: datetime) -> str:
    """Seconds up to two minutes, then minutes, hours, days, as kubectl writes ages; empty for an unknown time."""
    started = parse_time(since)
    if started is None:
        return ""
    seconds = max(0, int((now - started).total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"


def parse_time(text: object) -> datetime | None:
    """An RFC 3339 time of the API; None for anything else."""
    try:
        found = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
