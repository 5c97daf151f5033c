"""Makes the ordered writes that bring the cluster closer to the spec.

The process may die after any write, so every prefix of the order is safe:

1. what adds capacity: ServiceAccount, the Job that downloads a model, Deployments that are new or grow
   (first, because pods take longest to start), headless Services. Then the record of a new revision: after
   its Deployment, so that a runtime that the API server refuses is not recorded for good; before the status,
   so that no unrecorded revision gets requests;
2. the status, with the resourceVersion that the decision was made from: an outdated switch fails here;
3. the plain Service, which follows the status;
4. what removes capacity: Deployments that shrink, then old revisions;
5. the Job that reads a model on a claim; nothing waits for it.

A new replica count of the scaler is written into the status before any Deployment grows (unless a new
revision is recorded in the same pass). So the next leader knows the count, and an outdated leader fails
before it changes anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ..adapters.reported import events_of as adapter_events
from ..capacity.inspection import job_steps
from ..capacity.outlook import look
from ..models.awaited import model_steps, retry_in
from ..pods.children import Children
from ..pods.policies import disruption_budget_steps, network_policy_steps
from ..rollout.decision import Rollout, decide, freeze
from ..scaling.circuit import CONDITION as CIRCUIT_OPEN
from ..scaling.circuit import circuit_event
from ..scaling.handover import kept_count, settles_in
from ..scaling.providers import provider_retry, provider_steps
from ..scaling.records import event_of
from ..scaling.scaledown import cost_steps
from .causes import Cause
from .disputes import unheld
from .ownership import permitted
from .restarts import calm_after
from .snapshot import Snapshot
from .status import make_status
from .steps import Apply, Delete, Event, Step, WriteStatus

__all__ = ["Apply", "Delete", "Event", "Plan", "Step", "WriteStatus", "make_plan"]


TOLD = ("NotOwned", "NameConflict", "RuntimeMissing")
"""Conditions about other objects than the endpoint's own."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps in order, and the seconds after which to requeue even if nothing changes."""

    steps: tuple[Step, ...] = ()
    requeue_after: float | None = None
    held: tuple[tuple[str, str], ...] = ()
    """Children, by kind and name, whose needed write is held because another writer changes it back."""


def make_plan(snapshot: Snapshot, now: datetime) -> Plan:
    """The plan for one endpoint. It is empty if the endpoint is being deleted or nothing differs. `snapshot`
    must come from `reported.cleaned`."""
    if snapshot.endpoint.deleting:
        return Plan()
    endpoint = snapshot.endpoint
    if endpoint.spec is None:
        problem = Cause("SpecInvalid", endpoint.spec_error, permanent=True)
        frozen = freeze(snapshot, problem)
        return Plan(tuple(_status(snapshot, frozen, _present(snapshot, frozen.active), now)))
    snapshot = replace(snapshot, kept=kept_count(snapshot, now))
    rollout = decide(snapshot, endpoint.spec, now)
    owner = endpoint.owner
    children = Children(owner, snapshot, rollout.target, rollout.number, rollout.replicas, rollout.pruned)
    grow, shrink = children.deployments()
    record = list(children.records())
    status = list(_status(snapshot, rollout, snapshot.wanted, now))
    scaled = status if _rescaled(snapshot) and not record else []
    steps = (
        *children.service_account(),
        *network_policy_steps(owner, snapshot),
        *scaled,
        *model_steps(snapshot, endpoint.spec, now),
        *grow,
        *children.headless_services(),
        *record,
        *([] if scaled else status),
        *children.service(rollout.active),
        *disruption_budget_steps(owner, snapshot, rollout.active),
        *cost_steps(snapshot, rollout.scale_down),
        *shrink,
        *provider_steps(snapshot),
        *children.prune(),
        *job_steps(snapshot, rollout.target),
    )
    return _within_reach(snapshot, steps, _look_again(snapshot, rollout, now), now)


def _within_reach(
    snapshot: Snapshot, steps: Iterable[Step], requeue_after: float | None, now: datetime
) -> Plan:
    """The plan without the steps that would overwrite foreign objects, and without held writes."""
    allowed = tuple(permitted(steps, snapshot.foreign))
    useful = tuple(unheld(allowed, snapshot.disputes, now.timestamp()))
    held = (step.manifest for step in allowed if step not in useful and isinstance(step, Apply))
    return Plan(useful, requeue_after, tuple((item["kind"], item["metadata"]["name"]) for item in held))


def _look_again(snapshot: Snapshot, rollout: Rollout, now: datetime) -> float | None:
    """Seconds until the rollout, a download, the end of a restart storm, a handover or a missing KEDA needs a
    look."""
    calm = calm_after((pod for pods in snapshot.pods.values() for pod in pods), now)
    settled = settles_in(snapshot, now) if snapshot.kept is not None else None
    awaited = snapshot.observed.awaited
    retry = retry_in(awaited.task, now) if awaited else None
    pauses = (settled, rollout.requeue_after, retry, calm, provider_retry(snapshot))
    return min((pause for pause in pauses if pause), default=None)


def _rescaled(snapshot: Snapshot) -> bool:
    """Whether the scaler has decided on a count that the status does not show yet."""
    scaling, decided = snapshot.observed.scaling, snapshot.endpoint.status.get("autoscaling") or {}
    return scaling is not None and decided.get("desiredReplicas") != scaling.replicas


def _present(snapshot: Snapshot, active: str | None) -> int:
    """Replicas of the active revision's Deployment, for a spec that cannot be read."""
    deployment = snapshot.deployments.get(active or "", {})
    return int(deployment.get("spec", {}).get("replicas", 1))


def _status(snapshot: Snapshot, rollout: Rollout, wanted: int, now: datetime) -> Iterator[Step]:
    outlook = look(snapshot, rollout.target)
    status = make_status(snapshot, rollout, wanted, now, outlook)
    if status == snapshot.endpoint.stored:
        return
    events = (*rollout.events, *outlook.events)
    if rollout.active != rollout.previous:
        said = f"revision {rollout.active} gets requests now (before: {rollout.previous or 'none'})"
        events = (*events, Event("RevisionActivated", said))
    if snapshot.observed.scaling is not None:
        told = event_of(snapshot.observed.scaling, snapshot.endpoint.status.get("autoscaling") or {})
        events = (*events, told) if told else events
    live = snapshot.endpoint.status.get("conditions") or ()
    circuit = circuit_event(snapshot.observed.circuits, any(c["type"] == CIRCUIT_OPEN for c in live))
    events = (*events, circuit) if circuit else events
    yield WriteStatus(
        status,
        snapshot.endpoint.resource_version,
        (
            *events,
            *adapter_events(status, snapshot.endpoint.status),
            *_new_troubles(status, snapshot.endpoint.status),
        ),
    )


def _new_troubles(status: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[Event]:
    """Warnings for the conditions in TOLD that are new or have a new message."""
    known = {c["type"]: c["message"] for c in live.get("conditions") or ()}
    for condition in status.get("conditions", ()):
        kind, message = condition["type"], condition["message"]
        if kind in TOLD and known.get(kind) != message:
            yield Event(kind, message, "Warning")
