"""Which revision is asked for, which gets requests, and how many pods each has.

Rolling to the newest: the revision that the spec asks for (target) comes up beside the one that gets requests
(active), with the same count. The target takes over

- when as many of its pods are ready as the spec wants, or
- when one of them is ready and the active revision has none (a first start, or an outage): waiting loses requests.

The active revision keeps its pods until then, and for `rollout.scaleDownDelay` after. An edit while a revision is
coming up gives a new target; the one that never took over goes to zero at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..api import LLMEndpointSpec
from ..errors import SpecError
from .causes import Cause, is_ready, is_terminating
from .deployment import make_deployment
from .names import REVISION_LABEL, child_name
from .revision import TEMPLATE_VERSION, Revision, revision_hash
from .snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Rollout:
    """The decision. `replicas` holds the wanted count of each revision that has, or shall have, a Deployment."""

    target: Revision | None
    """None when it cannot be made; `problem` says why."""
    number: int
    """What the target's ControllerRevision shall carry: the highest of all."""
    active: str | None
    switched_at: datetime | None
    previous: str | None
    """What was active before this decision."""
    replicas: Mapping[str, int]
    pruned: tuple[str, ...]
    requeue_after: float | None
    problem: Cause | None


def ready_count(snapshot: Snapshot, revision: str | None) -> int:
    """Ready pods of a revision."""
    return sum(is_ready(pod) for pod in snapshot.pods.get(revision or "", ()))


def pod_count(snapshot: Snapshot, revision: str | None) -> int:
    """Pods of a revision that are not being deleted."""
    return sum(not is_terminating(pod) for pod in snapshot.pods.get(revision or "", ()))


def decide(snapshot: Snapshot, spec: LLMEndpointSpec, now: datetime) -> Rollout:
    """The rollout decision for one moment; `now` is UTC."""
    target, problem = find_target(snapshot, spec)
    previous, switched_at = find_active(snapshot, now)
    active = previous
    if target is not None and target.hash != active and _takes_over(snapshot, spec, target.hash, active):
        active, switched_at = target.hash, now
    serving = {active, target.hash if target else None}
    remaining = _delay_remaining(spec, switched_at, now)
    replicas = {hash_: spec.replicas for hash_ in serving if hash_ is not None}
    draining = False
    for hash_, deployment in snapshot.deployments.items():
        if hash_ not in serving:
            live = int(deployment.get("spec", {}).get("replicas", 1))
            replicas[hash_] = live if remaining > 0 else 0
            draining = draining or (live > 0 and remaining > 0)
    return Rollout(
        target=target,
        number=_number(snapshot, target),
        active=active,
        switched_at=switched_at,
        previous=previous,
        replicas=replicas,
        pruned=_pruned(snapshot, spec, serving, replicas),
        requeue_after=remaining if draining else None,
        problem=problem,
    )


def find_target(snapshot: Snapshot, spec: LLMEndpointSpec) -> tuple[Revision | None, Cause | None]:
    """The revision that the spec asks for: as recorded, or a new one from the runtime as it is now."""
    hash_ = revision_hash(spec)
    if hash_ in snapshot.revisions:
        return snapshot.revisions[hash_], None
    if hash_ in snapshot.records:
        message = f"ControllerRevision {child_name(snapshot.endpoint.name, hash_)} was written by another version of the operator"
        return None, Cause(
            "RevisionUnreadable", f"{message}; upgrade the operator, or delete that object", permanent=True
        )
    if snapshot.runtime is None:
        message = f"LLMRuntime {spec.runtime.name} does not exist; see `kubectl get llmruntimes` and correct spec.runtime.name"
        return None, Cause("RuntimeNotFound", message, permanent=True)
    revision = Revision(hash_, 0, TEMPLATE_VERSION, spec, snapshot.runtime)
    try:
        make_deployment(snapshot.endpoint.owner, revision, 0)
    except SpecError as error:
        return None, Cause(
            "RuntimeInvalid",
            f"LLMRuntime {spec.runtime.name} cannot run this endpoint: {error}",
            permanent=True,
        )
    return revision, None


def find_active(snapshot: Snapshot, now: datetime) -> tuple[str | None, datetime | None]:
    """The revision that gets requests, from the status; when the status was lost, from the plain Service's selector."""
    status = snapshot.endpoint.status
    active = status.get("activeRevision")
    if active:
        return str(active), parse_time(status.get("switchedAt"))
    service = snapshot.services.get(snapshot.endpoint.name, {})
    selected = service.get("spec", {}).get("selector", {}).get(REVISION_LABEL)
    if selected in snapshot.deployments:
        return str(selected), now
    return None, None


def parse_time(text: object) -> datetime | None:
    """RFC 3339 as the API server writes it."""
    return datetime.fromisoformat(str(text)).astimezone(UTC) if text else None


def _takes_over(snapshot: Snapshot, spec: LLMEndpointSpec, target: str, active: str | None) -> bool:
    if target not in snapshot.deployments:
        return False
    ready = ready_count(snapshot, target)
    return ready >= spec.replicas or (ready > 0 and ready_count(snapshot, active) == 0)


def _delay_remaining(spec: LLMEndpointSpec, switched_at: datetime | None, now: datetime) -> float:
    if switched_at is None:
        return 0.0
    until = switched_at + timedelta(seconds=spec.rollout.scale_down_delay)
    return max(0.0, (until - now).total_seconds())


def _number(snapshot: Snapshot, target: Revision | None) -> int:
    numbers = {hash_: int(record.get("revision", 0)) for hash_, record in snapshot.records.items()}
    highest = max(numbers.values(), default=0)
    if target is not None and numbers.get(target.hash) == highest:
        return highest
    return highest + 1


def _pruned(
    snapshot: Snapshot, spec: LLMEndpointSpec, serving: set[str | None], replicas: Mapping[str, int]
) -> tuple[str, ...]:
    """Old revisions beyond the history limit whose pods are all gone, and old Deployments without a record."""
    old = [hash_ for hash_ in {*snapshot.records, *snapshot.deployments} if hash_ not in serving]
    gone = [hash_ for hash_ in old if replicas.get(hash_, 0) == 0 and not snapshot.pods.get(hash_)]
    newest_first = sorted(old, key=lambda hash_: -int(snapshot.records.get(hash_, {}).get("revision", 0)))
    kept = {hash_ for hash_ in newest_first if hash_ in snapshot.records and hash_ in snapshot.deployments}
    kept = set([hash_ for hash_ in newest_first if hash_ in kept][: spec.revision_history_limit])
    return tuple(sorted(hash_ for hash_ in gone if hash_ not in kept))
