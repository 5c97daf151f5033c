"""Why pods are not ready, according to the kubelet, the scheduler and the controllers.

No cause contains a figure that changes by itself (restart counts, times), so a lasting cause is written only
once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..names import CONTAINER, PROBE_CONTAINER
from ..pods.manifests import Manifest
from ..pods.state import (
    changed_at,
    conditions_of,
    engine_ended,
    engine_status,
    find_condition,
    is_alive,
    is_finished,
    is_ready,
    was_ready,
)
from ..sentences import fitting, redacted

MESSAGE_LIMIT = 300

_PULL_REASONS = {
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "RegistryUnavailable",
    "ImageInspectError",
}
_CREATE_REASONS = {
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "PreCreateHookError",
}


_IMAGE_HINTS = {
    "model": "correct spec.modelImage of the LLMRuntime (or the chart's models.image), or let the node pull it",
    CONTAINER: "correct spec.runtime.image (or the LLMRuntime's image), or let the node pull it",
    PROBE_CONTAINER: "correct spec.probeImage of the LLMRuntime (or the chart's operator.image), or let the node pull it",
}


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something is wrong. `permanent`: it lasts until the spec or the cluster is changed. `expected`:
    nothing is wrong, it only takes time."""

    reason: str
    message: str
    permanent: bool = False
    expected: bool = False


def find_cause(deployment: Manifest | None, pods: Sequence[Manifest]) -> Cause | None:
    """The first cause that POD_RULES find for a revision's pods; None if the pods are ready or just loading.
    A finished pod counts only while fewer pods are alive than the Deployment wants."""
    wanted = int((deployment or {}).get("spec", {}).get("replicas", 1))
    missing = sum(map(is_alive, pods)) < wanted
    waiting = [p for p in pods if not is_ready(p) and (is_alive(p) or (missing and is_finished(p)))]
    waiting.sort(key=lambda pod: (is_finished(pod), str(pod["metadata"]["name"])))
    found = (cause for rule in POD_RULES for pod in waiting if (cause := rule(pod)) is not None)
    return next(found, None) or pods_refused(deployment)


def pods_refused(deployment: Manifest | None) -> Cause | None:
    """A quota or an admission policy refuses the pods. The Deployment shows the ReplicaSet's FailedCreate."""
    for condition in conditions_of(deployment or {}):
        if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True":
            return Cause("PodsRefused", f"pods cannot be created: {_short(condition.get('message', ''))}")
    return None


def deadline_exceeded(deployment: Manifest | None) -> bool:
    """Whether the Deployment made no progress within progressDeadlineSeconds."""
    return any(
        c.get("type") == "Progressing" and c.get("reason") == "ProgressDeadlineExceeded"
        for c in conditions_of(deployment or {})
    )


def unschedulable(pod: Manifest) -> Cause | None:
    """No node fits the pod."""
    condition = find_condition(pod, "PodScheduled")
    if condition.get("status") != "False" or condition.get("reason") != "Unschedulable":
        return None
    message = _short(condition.get("message", ""))
    if "persistentvolumeclaim" in message and "not found" in message:
        hint = "create the claim in the endpoint's namespace, or correct spec.model.source (or spec.model.cache.claimName)"
        return Cause("ModelClaimNotFound", f"{_clause(message)}; {hint}", permanent=True)
    for kind, count in _accelerators(pod).items():
        if f"Insufficient {kind}" in message:
            hint = f"add nodes with it, free some, or lower spec.resources.accelerator.count ({count})"
            return Cause(
                "NoAcceleratorAvailable", f"no node has {count} free {kind}; {hint}. Scheduler: {message}"
            )
    return Cause("Unschedulable", f"no node takes pod {_name(pod)}: {message}")


def image_not_pulled(pod: Manifest) -> Cause | None:
    """An image is missing, or the node may not pull it."""
    status = next((s for s in _statuses(pod) if _waits(s).get("reason") in _PULL_REASONS), None)
    if status is None:
        return None
    waiting = _waits(status)
    # The kubelet alternates between the error and "Back-off pulling …: ErrImagePull: <the error>".
    detail = _short(str(waiting.get("message", "")).rpartition("ErrImagePull: ")[2])
    image = _wanted_image(pod, status["name"]) or status.get("image", "")
    hint = _IMAGE_HINTS.get(status["name"], _IMAGE_HINTS[CONTAINER])
    return Cause(
        "ImagePullFailed",
        f"image {image} cannot be pulled: {_clause(detail)}; {hint}",
        waiting["reason"] == "InvalidImageName",
    )


def container_not_created(pod: Manifest) -> Cause | None:
    """The container runtime refuses the container."""
    waiting = _waiting(pod)
    if waiting.get("reason") not in _CREATE_REASONS:
        return None
    return Cause(
        "ContainerNotCreated", f"pod {_name(pod)}: {waiting['reason']}: {_short(waiting.get('message', ''))}"
    )


def engine_exited(pod: Manifest) -> Cause | None:
    """The engine ended. docs/contribute/contracts.md lists the exit codes."""
    ended = engine_ended(pod)
    if not ended:
        return None
    line = last_line(ended.get("message", ""))
    code = ended.get("exitCode")
    where = f"pod {_name(pod)}"
    if ended.get("reason") == "OOMKilled":
        limit = _engine_spec(pod).get("resources", {}).get("limits", {}).get("memory", "the node's memory")
        hint = "raise spec.resources.memory or lower spec.engine.kvCacheMemory"
        return Cause("OutOfMemory", f"{where}: the engine was killed at its memory limit ({limit}); {hint}")
    known = {2: ("BadEngineArgument", "correct spec.engine or spec.runtime.args"), 3: ("ModelNotFound", "correct spec.model.source"),
             4: ("ModelNotSupported", "serve another model or name another spec.runtime")}  # fmt: skip
    if code in known:
        reason, hint = known[code]
        return Cause(reason, f"{where}: {_clause(line) or f'exit code {code}'}; {hint}", permanent=True)
    if code in (137, 143):
        said = "most often because it was not ready within spec.progressDeadlineSeconds or stopped answering its liveness probe"
        return Cause(
            "EngineKilled", f"{where}: the engine was killed (exit code {code}), {said}{_last(line)}"
        )
    return Cause("EngineCrashed", f"{where}: the engine ended with exit code {code}{_last(line)}")


def unresponsive(pod: Manifest) -> Cause | None:
    """The engine was ready, still runs and no longer answers. A restarted engine is loading."""
    engine, since = engine_status(pod), changed_at(pod, "Ready")
    running = engine.get("state", {}).get("running")
    if running is None or engine.get("started") is False or is_ready(pod) or not was_ready(pod):
        return None
    if str(running.get("startedAt") or "") > since:
        return None
    said = f"pod {_name(pod)} answered before, but has not answered since {since}"
    hint = "see its logs; the kubelet restarts the engine if the liveness probe fails too"
    return Cause("EngineUnresponsive", f"{said}; {hint}")


def evicted(pod: Manifest) -> Cause | None:
    """The kubelet or the control plane removed the pod from its node."""
    status = pod.get("status", {})
    if status.get("phase") != "Failed" or not status.get("reason"):
        return None
    return Cause("PodFailed", f"pod {_name(pod)}: {status['reason']}: {_short(status.get('message', ''))}")


POD_RULES: tuple[Callable[[Manifest], Cause | None], ...] = (
    unschedulable, image_not_pulled, container_not_created, unresponsive, engine_exited, evicted,
)  # fmt: skip
"""The first rule that returns a cause wins."""


def last_line(text: str) -> str:
    """The last line of a termination message. For a JSON log line, its `event`."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        parsed: Any = json.loads(lines[-1])
    except (ValueError, RecursionError):
        return _short(lines[-1])
    return (
        _short(str(parsed["event"])) if isinstance(parsed, dict) and "event" in parsed else _short(lines[-1])
    )


def _last(line: str) -> str:
    return f"; its last line: {_clause(line)}" if line else ""


def _clause(text: str) -> str:
    """Another program's sentence, to be followed by `;`."""
    return text.rstrip(" .;")


def _short(text: str) -> str:
    return fitting(" ".join(redacted(text).split()), MESSAGE_LIMIT)


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])


def _statuses(pod: Manifest) -> list[Manifest]:
    """Statuses of the engine, then of the init containers and the sidecar."""
    status = pod.get("status", {})
    return [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]


def _waiting(pod: Manifest) -> Manifest:
    return _waits(engine_status(pod))


def _waits(status: Manifest) -> Manifest:
    found: Manifest = status.get("state", {}).get("waiting") or {}
    return found


def _wanted_image(pod: Manifest, container: str) -> str | None:
    spec = pod.get("spec", {})
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    return next((c.get("image") for c in containers if c.get("name") == container), None)


def _engine_spec(pod: Manifest) -> Manifest:
    containers = pod.get("spec", {}).get("containers") or []
    return next((c for c in containers if c.get("name") == CONTAINER), {})


def _accelerators(pod: Manifest) -> dict[str, str]:
    limits = _engine_spec(pod).get("resources", {}).get("limits", {})
    return {kind: str(count) for kind, count in limits.items() if "/" in kind}
