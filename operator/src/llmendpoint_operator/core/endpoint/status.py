"""The endpoint's status. At rest it contains no figure that changes by itself, so a steady state causes no write. While a
revision is observed, its account is written now and then (core/rollout/account.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from ...api import Capacity, Mode
from ..adapters.reported import Reported, report
from ..capacity.outlook import TYPE, Outlook
from ..models.files import Delivery, delivery
from ..models.tasks import fetch_failed
from ..names import selector_text
from ..pods.state import NO_PODS, is_alive, is_ready
from ..rollout.decision import Rollout
from ..rollout.machine import BEFORE_THE_SWITCH, State
from ..rollout.prospects import comes, volume_cause, waiting_cause
from ..rollout.target import unreadable_runtime
from ..scaling.circuit import circuit_message
from ..scaling.handover import handover_record
from ..scaling.providers import provider_outlook
from ..scaling.records import make_record
from ..times import time_text
from .causes import Cause, deadline_exceeded, find_cause
from .conditions import View, make_conditions
from .disputes import dispute_cause
from .ownership import foreign_cause
from .restarts import find_storm
from .served import conflict_message
from .snapshot import Snapshot

WITHOUT_NODE = frozenset({"NoAcceleratorAvailable", "Unschedulable"})
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def make_status(
    snapshot: Snapshot, rollout: Rollout, wanted: int, now: datetime, outlook: Outlook
) -> dict[str, Any]:
    """The whole status. Conditions whose status is unchanged keep their transition time."""
    endpoint = snapshot.endpoint
    target = rollout.target_hash
    shown = rollout.active or target
    adapters = _adapters(snapshot, rollout)
    status: dict[str, Any] = {
        "observedGeneration": endpoint.generation,
        "activeRevision": rollout.active,
        "targetRevision": target,
        "switchedAt": time_text(rollout.switched_at),
        "traffic": rollout.traffic.as_json() if rollout.traffic else None,
        "rollout": rollout.progress.as_json(),
        "model": _model(snapshot, rollout),
        "adapters": list(adapters.entries),
        "rejected": rollout.rejected.as_json() if rollout.rejected else None,
        "override": rollout.override.as_json() if rollout.override else None,
        "request": rollout.answer.as_json() if rollout.answer else endpoint.status.get("request"),
        "autoscaling": _autoscaling(snapshot, now),
        "replicas": rollout.counts.get(rollout.active or "", NO_PODS).alive,
        "readyReplicas": rollout.counts.get(rollout.active or "", NO_PODS).ready,
        "selector": selector_text(endpoint.name, shown) if shown else None,
        "revisions": _revisions(snapshot, rollout),
        "paths": _paths(snapshot, rollout),
        "capacity": outlook.record,
        "url": snapshot.gateway_url or f"http://{endpoint.name}.{endpoint.namespace}.svc/v1",
        "conditions": _conditions(
            endpoint.status,
            endpoint.generation,
            _view(snapshot, rollout, wanted, adapters, now),
            outlook,
            now,
        ),
    }
    return {key: value for key, value in status.items() if value is not None and value != []}


def _autoscaling(snapshot: Snapshot, now: datetime) -> dict[str, Any] | None:
    """`status.autoscaling`: None without a scaler; unchanged while the spec is unreadable."""
    endpoint = snapshot.endpoint
    live: Mapping[str, Any] | None = endpoint.status.get("autoscaling")
    if endpoint.spec is None:
        return dict(live) if live else None
    if snapshot.observed.scaling is None:
        return handover_record(snapshot, now)
    return make_record(snapshot.observed.scaling, live or {}, endpoint.spec.replicas)


def _paths(snapshot: Snapshot, rollout: Rollout) -> list[str]:
    """The paths that the active revision's LLMRuntime declares now. If that LLMRuntime is gone or unreadable,
    the paths in the status stay; right after a switch, the paths that the revision recorded are used."""
    endpoint, active = snapshot.endpoint, snapshot.revisions.get(rollout.active or "")
    spec = endpoint.spec
    if spec is not None and active is not None and active.inputs.runtime.name != spec.runtime.name:
        now = snapshot.other_paths.get(active.inputs.runtime.name)
    else:
        now = snapshot.runtime.paths if snapshot.runtime is not None else None
    if now is None and active is not None and endpoint.status.get("activeRevision") != active.hash:
        now = active.runtime.paths
    return list(endpoint.status.get("paths") or () if now is None else now)


def _model(snapshot: Snapshot, rollout: Rollout) -> dict[str, Any] | None:
    """The target's model: its recorded commit, or how far its download has come."""
    spec, target = snapshot.endpoint.spec, rollout.target
    awaited = snapshot.observed.awaited
    identity, task = (awaited.identity, awaited.task) if awaited else (None, None)
    commit = target.commit if target else identity.commit if identity else ""
    if spec is None or not commit:
        return None
    cached = delivery((target.inputs if target else spec).model) is Delivery.JOB
    progress = 100 if target else task.progress if task else 0
    return {"revision": commit} | ({"progress": progress} if cached else {})


def _revisions(snapshot: Snapshot, rollout: Rollout) -> list[dict[str, Any]]:
    found = ((name, rollout.counts.get(name, NO_PODS)) for name in sorted(snapshot.deployments))
    return [{"name": n, "replicas": c.alive, "readyReplicas": c.ready} for n, c in found if c.alive]


def _adapters(snapshot: Snapshot, rollout: Rollout) -> Reported:
    """What the active revision's ready pods have of the spec's adapters."""
    spec, active = snapshot.endpoint.spec, rollout.active or ""
    ready = [pod["metadata"]["name"] for pod in snapshot.pods.get(active, ()) if is_ready(pod)]
    live = snapshot.endpoint.status.get("adapters") or ()
    told = snapshot.observed.adapters
    return report(spec.adapters if spec else (), snapshot.revisions.get(active), ready, told, live)


def _view(snapshot: Snapshot, rollout: Rollout, wanted: int, adapters: Reported, now: datetime) -> View:
    target, outside, scaling = rollout.target_hash, provider_outlook(snapshot), snapshot.observed.scaling
    account = rollout.progress.account if rollout.progress.state is State.OBSERVING else None
    return View(
        wanted=wanted,
        active=rollout.active,
        target=target,
        active_ready=rollout.counts.get(rollout.active or "", NO_PODS).ready,
        target_ready=rollout.counts.get(target or "", NO_PODS).ready,
        cause=_cause(snapshot, rollout, target, now),
        deadline_exceeded=deadline_exceeded(snapshot.deployments.get(target or "")),
        state=rollout.progress.state,
        message=rollout.progress.message or "",
        observed=account.line if account is not None else "",
        late=account.late if account is not None else "",
        circuit=circuit_message(snapshot.observed.circuits),
        foreign=_foreign(snapshot, now),
        conflict=conflict_message((snapshot.endpoint.namespace, snapshot.endpoint.name), snapshot.conflicts),
        runtime_gone=snapshot.runtime_gone,
        adapters=adapters.verdict,
        scaled=scaling is not None or outside is not None,
        outlook=scaling.outlook if scaling else outside,
    )


def _foreign(snapshot: Snapshot, now: datetime) -> str:
    """Foreign objects with names of children; empty while garbage collection should delete them."""
    found = foreign_cause(snapshot.foreign, snapshot.endpoint.created, now)
    return "" if found is None or found.expected else found.message


def _cause(snapshot: Snapshot, rollout: Rollout, target: str | None, now: datetime) -> Cause | None:
    """The first cause found: what blocks the operator, then the target's pods, then the active revision's."""
    if (taken := foreign_cause(snapshot.foreign, snapshot.endpoint.created, now)) is not None:
        return taken
    if rollout.problem is not None:
        return rollout.problem
    if snapshot.refusal is not None:
        refusal = snapshot.refusal
        return Cause("Refused", f"the API server refuses {refusal.target}: {refusal.message}", permanent=True)
    if rollout.rejected is not None:
        why = rollout.rejected
        said = f"revision {why.revision} was rolled back ({why.reason}): {why.message}"
        hint = "change the spec, or `kubectl llm rollout restart` to try the same again"
        return Cause("RevisionRejected", f"{said}; {hint}", permanent=True)
    if (contested := dispute_cause(snapshot.disputes)) is not None:
        return contested
    for revision in dict.fromkeys((target, rollout.active)):
        pods = snapshot.pods.get(revision or "", ())
        deployment = snapshot.deployments.get(revision or "")
        told = snapshot.observed.evidence.told
        waiting = [pod for pod in pods if is_alive(pod) and not is_ready(pod)]
        coming = {pod["metadata"]["name"] for pod in waiting if comes(pod, told, now)}
        rest = [pod for pod in pods if pod["metadata"]["name"] not in coming]
        found = find_storm(pods, now) or find_cause(deployment, rest) or fetch_failed(waiting)
        found = found or volume_cause(waiting, told) or waiting_cause(waiting, told, now)
        if found is not None:
            return _with_place_hint(snapshot, rollout, revision, found)
    if snapshot.endpoint.spec is not None and snapshot.runtime_error:
        return unreadable_runtime(snapshot.endpoint.spec, snapshot)
    return None


def _with_place_hint(snapshot: Snapshot, rollout: Rollout, revision: str | None, cause: Cause) -> Cause:
    """The cause, with a hint if a new revision finds no node while the old one keeps answering."""
    spec, progress = snapshot.endpoint.spec, rollout.progress
    beside = progress.mode is Mode.SURGE and progress.state in BEFORE_THE_SWITCH and progress.blue is not None
    if spec is None or not beside or revision != progress.green or cause.reason not in WITHOUT_NODE:
        return cause
    said = f"{cause.message.rstrip('. ')}. Meanwhile revision {progress.blue} keeps its replicas"
    if spec.rollout.capacity is Capacity.AUTO and snapshot.wanted > 1:
        after = f"after {spec.rollout.unschedulable_seconds} s (spec.rollout.unschedulableSeconds), or as soon as an autoscaler says that no node comes"
        return replace(cause, message=f"{said}; {after}, new replicas replace them one by one")
    hint = "add a node, or write spec.rollout.capacity: Recreate, which stops the old replicas first"
    return replace(cause, message=f"{said}; {hint}")


def _conditions(
    live: Mapping[str, Any], generation: int, view: View, outlook: Outlook, now: datetime
) -> list[dict[str, Any]]:
    before = {condition["type"]: condition for condition in live.get("conditions") or ()}
    made = []
    found = list(make_conditions(view))
    kept = before.get(TYPE) if outlook.keeps else None
    if outlook.condition is not None and kept is None:
        found.append(outlook.condition)
    for condition in found:
        old = before.get(condition.type, {})
        same = old.get("status") == condition.status
        made.append(
            condition.as_json(generation, old["lastTransitionTime"] if same else now.strftime(TIME_FORMAT))
        )
    return [*made, *([kept] if kept is not None else [])]
