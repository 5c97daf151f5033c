"""Keeps the replica count when an outside scaler (KEDA, a HorizontalPodAutoscaler) replaces the builtin one.

The builtin scaler never writes spec.replicas. That field belongs to the outside scaler and holds an old
number, often 1. The last decision stays in status.autoscaling and holds until spec.replicas reaches it, or
until the outside scaler has followed its metric for SETTLE_SECONDS, as long as a HorizontalPodAutoscaler
waits before it lowers a count.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ...api.autoscaling import Provider
from ..endpoint.snapshot import Snapshot
from ..times import parse_time, time_text
from .providers import provider_outlook

SETTLE_SECONDS = 300


def kept_count(snapshot: Snapshot, now: datetime) -> int | None:
    """The count that holds instead of a lower spec.replicas; None if spec.replicas holds."""
    endpoint = snapshot.endpoint
    spec, decided = endpoint.spec, endpoint.status.get("autoscaling") or {}
    rules = spec.autoscaling if spec else None
    if spec is None or rules is None or rules.provider not in (Provider.KEDA, Provider.HPA):
        return None
    count = min(int(decided.get("desiredReplicas") or 0), rules.max_replicas)
    if not 0 < spec.replicas < count or settles_in(snapshot, now) == 0:
        return None
    return count


def settles_in(snapshot: Snapshot, now: datetime) -> float | None:
    """Seconds until the handover ends; None while the outside scaler does not follow its metric."""
    began = parse_time((snapshot.endpoint.status.get("autoscaling") or {}).get("handedOverAt"))
    if began is None:
        return float(SETTLE_SECONDS)
    outlook = provider_outlook(snapshot)
    if outlook is None or not outlook.follows:
        return None
    return max(0.0, SETTLE_SECONDS - (now - began).total_seconds())


def handover_record(snapshot: Snapshot, now: datetime) -> dict[str, Any] | None:
    """`status.autoscaling` while a count is kept, else None."""
    endpoint = snapshot.endpoint
    if snapshot.kept is None or endpoint.spec is None:
        return None
    live = endpoint.status.get("autoscaling") or {}
    began = live.get("handedOverAt") or time_text(now)
    return {"desiredReplicas": snapshot.kept, "specReplicas": endpoint.spec.replicas, "handedOverAt": began}
