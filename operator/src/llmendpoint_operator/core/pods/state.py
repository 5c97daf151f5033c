"""Facts from a pod's status, as the scheduler and the kubelet wrote it, without conclusions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..names import CONTAINER
from .manifests import Manifest


@dataclass(frozen=True, slots=True)
class Counts:
    """Pod counts of one revision. `alive`: neither terminating nor finished. `ready`: the ready ones of
    them."""

    alive: int = 0
    ready: int = 0


NO_PODS = Counts()


def count_pods(pods: Mapping[str, Iterable[Manifest]]) -> dict[str, Counts]:
    """Counts by revision hash."""
    alive = {hash_: [pod for pod in found if is_alive(pod)] for hash_, found in pods.items()}
    return {hash_: Counts(len(found), sum(map(is_ready, found))) for hash_, found in alive.items()}


def is_ready(pod: Manifest) -> bool:
    """Whether the pod takes requests."""
    return is_alive(pod) and find_condition(pod, "Ready").get("status") == "True"


def is_terminating(pod: Manifest) -> bool:
    """Whether the pod is being deleted."""
    return "deletionTimestamp" in pod["metadata"]


def is_finished(pod: Manifest) -> bool:
    """Whether the pod has ended for good, as after an eviction. It remains for inspection only."""
    return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def is_alive(pod: Manifest) -> bool:
    """Whether the pod serves, or may serve later."""
    return not is_terminating(pod) and not is_finished(pod)


def unscheduled_since(pod: Manifest) -> str | None:
    """When the scheduler found no node for the pod. None if it has a node, or was not considered yet."""
    condition = find_condition(pod, "PodScheduled")
    if condition.get("status") != "False" or is_ready(pod):
        return None
    return str(condition.get("lastTransitionTime", ""))


def is_gated(pod: Manifest) -> bool:
    """Whether the scheduler ignores the pod until its scheduling gates are removed."""
    condition = find_condition(pod, "PodScheduled")
    return condition.get("status") == "False" and condition.get("reason") == "SchedulingGated"


def served_until(pod: Manifest) -> str | None:
    """When the engine of a pod that had been ready last ended; None if the pod never was ready or its engine
    never ended. The condition Ready starts False when a node takes the pod, and changes only after the engine
    could start."""
    return engine_ended(pod).get("finishedAt") if was_ready(pod) else None


def was_ready(pod: Manifest) -> bool:
    """Whether the pod is ready, or was ready before."""
    return changed_at(pod, "Ready") > changed_at(pod, "Initialized")


def ready_since(pod: Manifest) -> str | None:
    """When the pod became ready; None if it is not ready, or the time is missing."""
    return (changed_at(pod, "Ready") or None) if is_ready(pod) else None


def unready_since(pod: Manifest) -> str | None:
    """When the pod became unready; None if it is ready, or the time is missing."""
    return None if is_ready(pod) else changed_at(pod, "Ready") or None


def engine_status(pod: Manifest) -> Manifest:
    """The kubelet's status of the engine container; empty before there is one."""
    statuses = pod.get("status", {}).get("containerStatuses") or []
    return next((s for s in statuses if s.get("name") == CONTAINER), {})


def engine_ended(pod: Manifest) -> Manifest:
    """How the engine last ended, now or before its present run; empty if it never did."""
    engine = engine_status(pod)
    found: Manifest = (
        engine.get("state", {}).get("terminated") or engine.get("lastState", {}).get("terminated") or {}
    )
    return found


def conditions_of(thing: Manifest) -> Iterable[Manifest]:
    """The conditions of a pod or a Deployment."""
    found: Iterable[Manifest] = thing.get("status", {}).get("conditions") or ()
    return found


def find_condition(thing: Manifest, kind: str) -> Manifest:
    """The condition of this type; empty if there is none."""
    return next((c for c in conditions_of(thing) if c.get("type") == kind), {})


def changed_at(pod: Manifest, kind: str) -> str:
    """When this condition last changed; empty if the time is missing."""
    return str(find_condition(pod, kind).get("lastTransitionTime") or "")
