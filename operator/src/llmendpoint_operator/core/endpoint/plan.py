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

from ..capacity.inspection import job_steps
from ..capacity.outlook import look
from ..models.awaited import model_steps, retry_in
from ..names import NO_REVISION, child_name
from ..pods.builders import (
    make_controller_revision,
    make_headless_service,
    make_service,
    make_service_account,
)
from ..pods.deployment import make_deployment
from ..pods.drift import first_difference, with_additions
from ..pods.manifests import Manifest
from ..pods.policies import disruption_budget_steps, network_policy_steps
from ..pods.revision import ADDITIONS_JUDGED, Revision, revision_data
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
    grow, shrink = _deployments(snapshot, rollout)
    record, status = list(_record(snapshot, rollout)), list(_status(snapshot, rollout, snapshot.wanted, now))
    scaled = status if _rescaled(snapshot) and not record else []
    steps = (
        *_service_account(snapshot),
        *network_policy_steps(snapshot),
        *scaled,
        *model_steps(snapshot, endpoint.spec, now),
        *grow,
        *_headless_services(snapshot, rollout),
        *record,
        *([] if scaled else status),
        *_service(snapshot, rollout),
        *disruption_budget_steps(snapshot, rollout.active),
        *cost_steps(snapshot, rollout.scale_down),
        *shrink,
        *provider_steps(snapshot),
        *_prune(snapshot, rollout),
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


def _service_account(snapshot: Snapshot) -> Iterator[Step]:
    wanted = make_service_account(snapshot.endpoint.owner)
    if first_difference(wanted, snapshot.service_account) is not None:
        yield Apply(wanted, _restored(wanted, snapshot.service_account))


def _rendered(snapshot: Snapshot, rollout: Rollout) -> Iterator[Revision]:
    """Revisions whose children are kept as recorded: the target, the active one, and existing old ones."""
    for hash_ in sorted(rollout.replicas):
        if rollout.target is not None and hash_ == rollout.target.hash:
            yield rollout.target
        elif hash_ in snapshot.revisions and hash_ not in rollout.pruned:
            yield snapshot.revisions[hash_]


def _headless_services(snapshot: Snapshot, rollout: Rollout) -> Iterator[Step]:
    for revision in _rendered(snapshot, rollout):
        wanted = make_headless_service(snapshot.endpoint.owner, revision)
        live = snapshot.services.get(wanted["metadata"]["name"])
        if first_difference(wanted, live) is not None:
            yield Apply(wanted, _restored(wanted, live))


def _deployments(snapshot: Snapshot, rollout: Rollout) -> tuple[list[Step], list[Step]]:
    grow: list[Step] = []
    shrink: list[Step] = []
    deadline = snapshot.endpoint.spec.progress_deadline_seconds if snapshot.endpoint.spec else None
    for revision in _rendered(snapshot, rollout):
        count = rollout.replicas[revision.hash]
        wanted = make_deployment(snapshot.endpoint.owner, revision, count, deadline)
        live = snapshot.deployments.get(revision.hash)
        if revision.template_version < ADDITIONS_JUDGED and live is not None:
            wanted["spec"]["template"] = with_additions(wanted["spec"]["template"], live["spec"]["template"])
        difference = first_difference(wanted, live)
        if difference is None:
            continue
        shrinks = live is not None and count < int(live["spec"].get("replicas", 1))
        event = (
            _scaled(revision.hash, count, live)
            if difference == "spec.replicas"
            else _restored(wanted, live, difference)
        )
        (shrink if shrinks else grow).append(Apply(wanted, event))
    return grow, shrink


def _record(snapshot: Snapshot, rollout: Rollout) -> Iterator[Step]:
    """The ControllerRevisions. The target's is written if it is new or asked for again; others stay
    unchanged."""
    target = rollout.target
    for revision in _rendered(snapshot, rollout):
        live = snapshot.records.get(revision.hash)
        is_target = target is not None and revision.hash == target.hash
        data = live["data"] if live is not None else revision_data(revision)
        number = rollout.number if is_target or live is None else int(live.get("revision", 0))
        wanted = make_controller_revision(snapshot.endpoint.owner, revision.hash, number, data)
        if live is None:
            yield Apply(wanted, Event("RevisionCreated", f"revision {revision.hash} is starting"))
        elif first_difference(wanted, live) is not None:
            reused = number != int(live.get("revision", 0))
            yield Apply(
                wanted,
                Event("RevisionReused", f"revision {revision.hash} is starting again") if reused else None,
            )


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
        (*events, *_new_troubles(status, snapshot.endpoint.status)),
    )


def _new_troubles(status: Mapping[str, Any], live: Mapping[str, Any]) -> Iterator[Event]:
    """Warnings for the conditions in TOLD that are new or have a new message."""
    known = {c["type"]: c["message"] for c in live.get("conditions") or ()}
    for condition in status.get("conditions", ()):
        kind, message = condition["type"], condition["message"]
        if kind in TOLD and known.get(kind) != message:
            yield Event(kind, message, "Warning")


def _service(snapshot: Snapshot, rollout: Rollout) -> Iterator[Step]:
    wanted = make_service(snapshot.endpoint.owner, rollout.active or NO_REVISION)
    if first_difference(wanted, snapshot.services.get(snapshot.endpoint.name)) is not None:
        yield Apply(wanted)


def _prune(snapshot: Snapshot, rollout: Rollout) -> Iterator[Step]:
    endpoint = snapshot.endpoint
    for hash_ in rollout.pruned:
        name = child_name(endpoint.name, hash_)
        if hash_ in snapshot.deployments:
            yield Delete("apps/v1", "Deployment", endpoint.namespace, name)
        if name in snapshot.services:
            yield Delete("v1", "Service", endpoint.namespace, name)
        if hash_ in snapshot.records:
            event = Event("RevisionPruned", f"revision {hash_} is beyond spec.revisionHistoryLimit")
            yield Delete("apps/v1", "ControllerRevision", endpoint.namespace, name, event)


def _scaled(hash_: str, count: int, live: Manifest | None) -> Event | None:
    if live is None:
        return None
    return Event("RevisionScaled", f"revision {hash_}: replicas {live['spec'].get('replicas', 1)} -> {count}")


def _restored(wanted: Manifest, live: Manifest | None, difference: str | None = None) -> Event | None:
    """The Event for a child that was changed by another writer; None if the child is new."""
    if live is None:
        return None
    where = difference or first_difference(wanted, live)
    return Event(
        "ChildRestored", f"{wanted['kind']} {wanted['metadata']['name']}: {where} put back", "Warning"
    )
