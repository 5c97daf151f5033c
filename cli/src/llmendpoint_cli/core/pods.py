"""What one pod is doing and why it is not ready, from what the scheduler and the kubelet report."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .objects import Object, conditions_of, is_true, name_of, parse_time, status_of

MESSAGE_LIMIT = 200

_QUIET_REASONS = {None, "", "ContainerCreating", "PodInitializing"}


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod of an endpoint. `phase`: Pending, Starting, Loading, Ready, Unresponsive, Stopping or Failed."""

    name: str
    phase: str
    why: str
    ready: bool
    node: str | None
    restarts: int
    created: str
    draining: bool = False
    """Gets no new requests, and is stopped next."""


def view_pod(pod: Object, draining: bool = False) -> PodView:
    """A pod as it is shown."""
    phase, why = _phase(pod)
    return PodView(
        name=name_of(pod),
        phase=phase,
        why=why,
        ready=phase == "Ready",
        node=pod.get("spec", {}).get("nodeName"),
        restarts=sum(int(c.get("restartCount", 0)) for c in _containers(pod)),
        created=str(pod["metadata"].get("creationTimestamp", "")),
        draining=draining,
    )


def _phase(pod: Object) -> tuple[str, str]:
    status, conditions = status_of(pod), conditions_of(pod)
    if pod["metadata"].get("deletionTimestamp"):
        return "Stopping", "finishes its requests"
    if status.get("phase") in ("Failed", "Succeeded"):
        return "Failed", _short(f"{status.get('reason', '')}: {status.get('message', '')}".strip(": "))
    if is_true(conditions.get("Ready")):
        return "Ready", ""
    trouble = next(iter(_troubles(pod)), "")
    if not is_true(conditions.get("PodScheduled")) and not pod.get("spec", {}).get("nodeName"):
        return "Pending", _unscheduled(conditions.get("PodScheduled") or {})
    if trouble:
        return "Failed", trouble
    if status.get("phase") == "Running":
        since = _unresponsive_since(pod)
        if since:
            return "Unresponsive", f"since {since}; it was ready before"
        return "Loading", "loads the model and warms up"
    return "Starting", "its containers are being created"


def _unresponsive_since(pod: Object) -> str:
    """When a pod that had been ready stopped being ready; empty for one that still loads.

    The Ready condition of a pod that was never ready dates from before its containers ran. If the condition changed
    while the containers ran, the pod was ready before. If a container started again after the change, the pod loads.
    """
    changed = parse_time((conditions_of(pod).get("Ready") or {}).get("lastTransitionTime"))
    running = [parse_time((c.get("state") or {}).get("running", {}).get("startedAt")) for c in _engines(pod)]
    if changed is None or not running or not all(started and started < changed for started in running):
        return ""
    return f"{changed:%Y-%m-%dT%H:%M:%SZ}"


def _unscheduled(condition: Object) -> str:
    if condition.get("reason") == "Unschedulable":
        return _short(f"Unschedulable: {condition.get('message', '')}")
    return "waits for the scheduler"


def _troubles(pod: Object) -> Iterable[str]:
    """What keeps a container from running; a container that runs again after a crash is loading, not failed."""
    for container in _containers(pod):
        state, last = container.get("state") or {}, container.get("lastState") or {}
        waiting, ended = state.get("waiting") or {}, state.get("terminated") or last.get("terminated") or {}
        if waiting.get("reason") == "CrashLoopBackOff" or "terminated" in state:
            if ended and ended.get("exitCode") != 0:
                yield _ended(container, ended)
        elif waiting.get("reason") not in _QUIET_REASONS:
            yield _short(f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": "))


def _ended(container: Object, ended: Object) -> str:
    """`engine ended with exit code 3: <last line>`. For OOMKilled, words replace the code."""
    how = (
        "was killed at its memory limit"
        if ended.get("reason") == "OOMKilled"
        else f"ended with exit code {ended.get('exitCode')}"
    )
    line = _last_line(str(ended.get("message") or ""))
    return f"{container.get('name', 'a container')} {how}" + (f": {line}" if line else "")


def _last_line(text: str) -> str:
    """The last line of a termination message; of a JSON log line, its `event`."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    try:
        parsed: Any = json.loads(lines[-1])
    except ValueError:
        return _short(lines[-1])
    return (
        _short(str(parsed["event"])) if isinstance(parsed, dict) and "event" in parsed else _short(lines[-1])
    )


def _containers(pod: Object) -> list[Object]:
    return [*(status_of(pod).get("initContainerStatuses") or ()), *_engines(pod)]


def _engines(pod: Object) -> list[Object]:
    return [*(status_of(pod).get("containerStatuses") or ())]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MESSAGE_LIMIT else text[: MESSAGE_LIMIT - 1] + "…"
