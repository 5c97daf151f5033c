"""An endpoint with its revisions and their pods, as `kubectl llm status` shows it.

| role of a revision | meaning |
|---|---|
| active | gets new requests (most of them, while two revisions share) |
| new | the spec or a rollout asks for it, and it is not active yet |
| rejected | was rolled back; not tried again while the spec asks for it |
| old | gets no new requests any more; its pods finish those that they have |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .names import ENDPOINT_LABEL, RESTING, REVISION_LABEL
from .objects import (
    Object,
    conditions_of,
    is_observed,
    is_true,
    label_of,
    name_of,
    namespace_of,
    reason_text,
    rejection_of,
    rollout_of,
    status_of,
    wanted_of,
)
from .observed import observation_of, requests_text
from .pods import PodView, view_pod
from .presence import UNKNOWN, OperatorView, Presence

POSITIVE = ("Ready", "Progressing", "Reconciling", "Scaling", "CapacityFits", "AdaptersReady")
"""Conditions for which True is good. For every other one, known here or not, True means that something is wrong. These
are Kubernetes' API conventions, so a newer operator's conditions are shown too."""
WORTH_TELLING = ("CapacityFits", "Scaling", "AdaptersReady")
"""Positive conditions for which False is a cause of its own."""


@dataclass(frozen=True, slots=True)
class RevisionView:
    """One revision that has pods, traffic or a part in a rollout. `weight`: percent of new requests."""

    name: str
    role: str
    weight: int
    ready: int
    pods: tuple[PodView, ...]


@dataclass(frozen=True, slots=True)
class RolloutView:
    """The current rollout, or how the last one ended. `observed`: how far the verdict on the new revision is, in words; empty
    while nothing is observed."""

    state: str
    since: str
    mode: str
    message: str
    observed: str = ""


@dataclass(frozen=True, slots=True)
class AdapterView:
    """A LoRA adapter, and how many ready replicas of the active revision have it."""

    name: str
    ready: int
    source: str


@dataclass(frozen=True, slots=True)
class EndpointView:
    """One endpoint. `phase`: NoOperator, Pending, Starting, RollingOut, Ready, Degraded, Stalled, NotReady or Stopping."""

    namespace: str
    name: str
    phase: str
    operator: str
    wanted: int
    ready: int
    url: str | None
    why: tuple[str, ...]
    rollout: RolloutView | None
    revisions: tuple[RevisionView, ...]
    adapters: tuple[AdapterView, ...] = ()


def view_endpoint(endpoint: Object, pods: Iterable[Object], operator: OperatorView = UNKNOWN) -> EndpointView:
    """An endpoint, and those of `pods` that are its own. Without an operator its status is outdated."""
    mine = [
        p
        for p in pods
        if label_of(p, ENDPOINT_LABEL) == name_of(endpoint) and namespace_of(p) == namespace_of(endpoint)
    ]
    status = status_of(endpoint)
    return EndpointView(
        namespace=namespace_of(endpoint),
        name=name_of(endpoint),
        phase=phase_of(endpoint, operator),
        operator=operator.presence,
        wanted=wanted_of(endpoint),
        ready=int(status.get("readyReplicas", 0)),
        url=status.get("url"),
        why=(*filter(None, [operator.why]), *reasons(endpoint)),
        rollout=_rollout(endpoint),
        revisions=_revisions(endpoint, mine),
        adapters=_adapters(endpoint),
    )


def phase_of(endpoint: Object, operator: OperatorView = UNKNOWN) -> str:
    """One word for the state of an endpoint."""
    conditions, status = conditions_of(endpoint), status_of(endpoint)
    ready = is_true(conditions.get("Ready"))
    rules = (
        ("Stopping", bool(endpoint["metadata"].get("deletionTimestamp"))),
        ("NoOperator", operator.presence is Presence.ABSENT),
        ("Pending", not is_observed(endpoint)),
        ("Stalled", is_true(conditions.get("Stalled"))),
        ("Starting", not ready and not status.get("activeRevision")),
        ("NotReady", not ready),
        ("RollingOut", rollout_of(endpoint).get("state", "Idle") not in RESTING),
        ("Degraded", is_true(conditions.get("Degraded"))),
    )
    return next((word for word, holds in rules if holds), "Ready")


def reasons(endpoint: Object) -> tuple[str, ...]:
    """Why the endpoint is not healthy, each cause once; empty if all is well."""
    if not is_observed(endpoint):
        generation = endpoint["metadata"].get("generation")
        return (f"the operator has not seen generation {generation} of the spec yet; check that it runs",)
    conditions = conditions_of(endpoint)
    wrong = [conditions["Ready"]] if "Ready" in conditions and not is_true(conditions["Ready"]) else []
    wrong += [conditions[kind] for kind in ("Stalled", "Degraded") if is_true(conditions.get(kind))]
    wrong += [
        c for kind, c in conditions.items() if kind not in (*POSITIVE, "Stalled", "Degraded") and is_true(c)
    ]
    wrong += [
        conditions[kind] for kind in WORTH_TELLING if (conditions.get(kind) or {}).get("status") == "False"
    ]
    return tuple(dict.fromkeys(reason_text(condition) for condition in wrong))


def weights_of(endpoint: Object) -> dict[str, int]:
    """Percent of new requests by revision. Without an assignment the active revision gets all of them."""
    status = status_of(endpoint)
    weights = (status.get("traffic") or {}).get("weights")
    if weights:
        return {str(item["revision"]): int(item["weight"]) for item in weights}
    active = status.get("activeRevision")
    return {str(active): 100} if active else {}


def role_of(endpoint: Object, revision: str) -> str:
    """The role that a revision has now."""
    status = status_of(endpoint)
    if revision == status.get("activeRevision"):
        return "active"
    if revision == rejection_of(endpoint).get("revision"):
        return "rejected"
    if revision in (status.get("targetRevision"), rollout_of(endpoint).get("green")):
        return "new"
    return "old"


def _adapters(endpoint: Object) -> tuple[AdapterView, ...]:
    listed = status_of(endpoint).get("adapters") or ()
    return tuple(
        AdapterView(str(one["name"]), int(one.get("readyReplicas", 0)), str(one.get("source", "")))
        for one in listed
    )


def _rollout(endpoint: Object) -> RolloutView | None:
    rollout = rollout_of(endpoint)
    if rollout.get("state", "Idle") == "Idle":
        return None
    observation = observation_of(endpoint)
    return RolloutView(
        state=str(rollout["state"]),
        since=str(rollout.get("stateSince", "")),
        mode=str(rollout.get("mode", "")),
        message=str(rollout.get("message", "")),
        observed=requests_text(observation) if observation else "",
    )


def _revisions(endpoint: Object, pods: list[Object]) -> tuple[RevisionView, ...]:
    status, rollout, weights = status_of(endpoint), rollout_of(endpoint), weights_of(endpoint)
    draining = frozenset((status.get("traffic") or {}).get("draining") or ())
    by_revision: dict[str, list[PodView]] = {}
    for pod in sorted(pods, key=name_of):
        revision = label_of(pod, REVISION_LABEL) or "none"
        by_revision.setdefault(revision, []).append(view_pod(pod, name_of(pod) in draining))
    under_way = rollout.get("state", "Idle") not in RESTING
    named = [status.get("activeRevision"), status.get("targetRevision")]
    named += [rollout.get("blue"), rollout.get("green")] if under_way else []
    names = dict.fromkeys(str(n) for n in (*named, *weights, *sorted(by_revision)) if n)
    return tuple(_revision(endpoint, name, weights, by_revision.get(name, [])) for name in names)


def _revision(endpoint: Object, name: str, weights: Mapping[str, int], pods: list[PodView]) -> RevisionView:
    return RevisionView(
        name=name,
        role=role_of(endpoint, name),
        weight=weights.get(name, 0),
        ready=sum(pod.ready for pod in pods),
        pods=tuple(pods),
    )


def as_json(view: Any) -> Any:
    """A view as JSON with the API's camelCase names. Unknown values are left out."""
    if isinstance(view, (tuple, list)):
        return [as_json(item) for item in view]
    if hasattr(view, "__dataclass_fields__"):
        fields = {_camel(name): as_json(getattr(view, name)) for name in view.__dataclass_fields__}
        return {name: value for name, value in fields.items() if value is not None}
    return view


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
