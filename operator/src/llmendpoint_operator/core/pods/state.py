"""What a pod says of itself, as the scheduler and the kubelet wrote it: facts, from which causes.py and others conclude."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..names import CONTAINER
from .manifests import Manifest


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one revision: pods that are neither being deleted nor ended for good, and those of them that take requests."""

    alive: int = 0
    ready: int = 0


NO_PODS = Counts()


def count_pods(pods: Mapping[str, Iterable[Manifest]]) -> dict[str, Counts]:
    """By revision."""
    alive = {hash_: [pod for pod in found if is_alive(pod)] for hash_, found in pods.items()}
    return {hash_: Counts(len(found), sum(map(is_ready, found))) for hash_, found in alive.items()}


def is_ready(pod: Manifest) -> bool:
    """Whether the pod takes requests."""
    return is_alive(pod) and find_condition(pod, "Ready").get("status") == "True"


def is_terminating(pod: Manifest) -> bool:
    """Whether the pod is on its way out."""
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Manifest) -> bool:
    """Whether the pod has ended for good, as after an eviction or its node's shutdown: it stays only to be looked at."""
    return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def is_alive(pod: Manifest) -> bool:
    """Whether the pod is, or will be, of use."""
    return not is_terminating(pod) and not is_finished(pod)


def unscheduled_since(pod: Manifest) -> str | None:
    """When the scheduler found no node for the pod, as in its condition; None when it has one, or was not asked yet."""
    condition = find_condition(pod, "PodScheduled")
    if condition.get("status") != "False" or is_ready(pod):
        return None
    return str(condition.get("lastTransitionTime", ""))


def is_gated(pod: Manifest) -> bool:
    """Whether the scheduler leaves the pod alone until somebody removes its scheduling gates."""
    condition = find_condition(pod, "PodScheduled")
    return condition.get("status") == "False" and condition.get("reason") == "SchedulingGated"


def served_until(pod: Manifest) -> str | None:
    """When the engine of a pod that had been ready last ended; None where it never was, or did not end. The condition
    Ready begins False when the node takes the pod, and can change only after its engine could start."""
    return engine_ended(pod).get("finishedAt") if was_ready(pod) else None


def was_ready(pod: Manifest) -> bool:
    """Whether the pod is or has been ready."""
    return changed_at(pod, "Ready") > changed_at(pod, "Initialized")


def ready_since(pod: Manifest) -> str | None:
    """None where the pod is not ready, or does not say."""
    return (changed_at(pod, "Ready") or None) if is_ready(pod) else None


def unready_since(pod: Manifest) -> str | None:
    """None where the pod is ready, or does not say."""
    return None if is_ready(pod) else changed_at(pod, "Ready") or None


def engine_status(pod: Manifest) -> Manifest:
    """Of the engine container, as the kubelet wrote it; empty before."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((s for s in statuses if s.get("name") == CONTAINER), {})


def engine_ended(pod: Manifest) -> Manifest:
    """How the engine ended last, now or before its present run; empty where it never did."""
    engine = engine_status(pod)
    found: Manifest = (
        engine.get("state", {}).get("terminated") or engine.get("lastState", {}).get("terminated") or {}
    )
    return found


def conditions_of(thing: Manifest) -> Iterable[Manifest]:
    """Of a pod, or of a Deployment."""
    found: Iterable[Manifest] = thing.get("status", {}).get("conditions") or ()
    return found


def find_condition(thing: Manifest, kind: str) -> Manifest:
    """Empty where it has none of this type."""
    return next((c for c in conditions_of(thing) if c.get("type") == kind), {})


def changed_at(pod: Manifest, kind: str) -> str:
    """When this condition changed last; empty where the pod does not say."""
    return str(find_condition(pod, kind).get("lastTransitionTime") or "")
