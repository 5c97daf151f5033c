"""The state of a Job that runs `llmendpoint-model`, according to the API server."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..endpoint.causes import Cause, find_cause, last_line
from ..pods.manifests import Manifest
from ..times import parse_time
from .identity import Identity
from .jobs import CONTAINER

UNUSED_ANNOTATION = "llmendpoint.io/unused-since"
REMOVING_ANNOTATION = "llmendpoint.io/removing"
RETRY_SECONDS = 300
"""Seconds after which a failed download is repeated: faults are often corrected outside the spec."""

_SOURCE = "correct spec.model.source"
EXITS = {
    1: ("ModelUnavailable", "the operator tries again; if it keeps failing, look at proxies, NetworkPolicies and "
        "spec.model.source", False),
    2: ("ModelCacheUnusable", "correct spec.model.cache.claimName, or make its volume writable", True),
    3: ("ModelNotFound", _SOURCE, True),
    5: ("ModelFormatRefused", "name one with *.safetensors or *.gguf in spec.model.source, or, for an engine that "
        "loads pickles and a source that you trust, set spec.model.allowPickle: true", True),
    6: ("ModelCacheFull", "enlarge the claim of spec.model.cache.claimName, or name another one", True),
    7: ("ModelAccessDenied", "correct spec.model.source, or name a Secret with the credentials in "
        "spec.model.credentials.secretName", True),
    8: ("ModelCorrupt", "upload the model again, or correct spec.model.source", True),
    9: ("ModelSourceChanged", "`kubectl llm rollout restart` makes a revision of what lies in spec.model.source now", True),
}  # fmt: skip
"""By exit code: reason, what to do, and whether the fault lasts until something is changed."""


_NOT_CREATED = ("CreateContainerConfigError", "CreateContainerError")
"""Usually because a Secret is missing."""


class Stage(StrEnum):
    """The stage of a Job."""

    ABSENT = "Absent"
    RUNNING = "Running"
    DONE = "Done"
    FAILED = "Failed"
    LEAVING = "Leaving"
    """The Job or its files are about to be deleted."""


@dataclass(frozen=True, slots=True)
class Task:
    """The state of a Job. `answer`: output of a finished one. `cause`: what is wrong. `address`: of the
    downloading pod, which reports its progress. `progress`: percent, in steps of ten."""

    stage: Stage = Stage.ABSENT
    answer: str = ""
    cause: Cause | None = None
    ended: datetime | None = None
    address: str | None = None
    progress: int = 0
    job: str = ""
    """For a download: the Job's name, even before the Job exists."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The model that the next revision waits for. `revision`: its hash. `identity`: the resolved source, None
    while that is in progress. `task`: the Job that resolves or downloads, None if none is needed."""

    revision: str
    identity: Identity | None = None
    task: Task | None = None


def read_task(job: Manifest | None, pods: Sequence[Manifest]) -> Task:
    """The state of `job`; `pods` are its pods."""
    if job is None:
        return Task()
    annotations = job["metadata"].get("annotations") or {}
    if "deletionTimestamp" in job["metadata"] or annotations.keys() & {
        UNUSED_ANNOTATION,
        REMOVING_ANNOTATION,
    }:
        return Task(Stage.LEAVING)
    ended = condition_of(job, "Complete")
    if ended is not None:
        return Task(
            Stage.DONE, _answer(pods), ended=parse_time(ended.get("lastTransitionTime")), progress=100
        )
    ended = condition_of(job, "Failed")
    if ended is not None:
        said = str(ended.get("message", ""))
        cause = fetch_failed(pods) or Cause(
            "ModelUnavailable", f"Job {job['metadata']['name']} failed: {said}"
        )
        return Task(Stage.FAILED, cause=cause, ended=parse_time(ended.get("lastTransitionTime")))
    address = next((a for pod in pods if (a := _address(pod))), None)
    wrong = None if address else find_cause(None, pods) or fetch_failed(pods)
    return Task(Stage.RUNNING, cause=wrong, address=address)


def identity_of(task: Task) -> Identity | None:
    """What a Job found out about a source; None while it runs."""
    if task.stage is Stage.FAILED and task.cause is not None:
        return Identity(problem=task.cause.message, permanent=task.cause.permanent, reason=task.cause.reason)
    if task.stage is Stage.RUNNING and task.cause is not None:
        return Identity(problem=task.cause.message, reason=task.cause.reason)
    if task.stage is not Stage.DONE:
        return None
    try:
        return Identity(commit=str(json.loads(task.answer)["revision"]))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def fetch_failed(pods: Sequence[Manifest]) -> Cause | None:
    """Why the last downloading container failed, in a Job's pod or in an engine's pod."""
    for name, status in _statuses(pods):
        waiting = status.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _NOT_CREATED:
            said = f"pod {name}: {waiting['reason']}: {waiting.get('message', '')}"
            return Cause("ContainerNotCreated", f"{said}; see spec.model.credentials.secretName")
    end = last_end(pods)
    if end is None:
        return None
    if end.out_of_memory:
        return Cause("ModelUnavailable", f"pod {end.pod}: the download was killed at its memory limit")
    reason, hint, permanent = EXITS.get(end.exit_code, EXITS[1])
    return Cause(reason, f"{end.said}; {hint}", permanent)


@dataclass(frozen=True, slots=True)
class End:
    """How a downloading, resolving or deleting container ended."""

    pod: str
    exit_code: int
    said: str
    out_of_memory: bool


def last_end(pods: Sequence[Manifest]) -> End | None:
    """The latest unsuccessful end; None if there was none."""
    ended = []
    for name, status in _statuses(pods):
        state = (
            status.get("state", {}).get("terminated") or status.get("lastState", {}).get("terminated") or {}
        )
        if state.get("exitCode"):
            ended.append((str(state.get("finishedAt") or ""), name, state))
    if not ended:
        return None
    _, name, state = max(ended, key=lambda item: item[:2])
    out_of_memory = state.get("reason") == "OOMKilled"
    silent = f"llmendpoint-model ended with exit code {state['exitCode']}"
    said = last_line(state.get("message", "")) or silent
    killed = f"pod {name} was killed at its memory limit"
    return End(name, state["exitCode"], killed if out_of_memory else said, out_of_memory)


def _statuses(pods: Sequence[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for pod in pods:
        for kind in ("containerStatuses", "initContainerStatuses"):
            for status in pod.get("status", {}).get(kind) or ():
                if status.get("name") == CONTAINER:
                    yield pod["metadata"]["name"], status


def _answer(pods: Sequence[Manifest]) -> str:
    for pod in pods:
        for status in pod.get("status", {}).get("containerStatuses") or ():
            ended = status.get("state", {}).get("terminated") or {}
            if status.get("name") == CONTAINER and ended.get("exitCode") == 0 and ended.get("message"):
                return str(ended["message"])
    return ""


def _address(pod: Manifest) -> str | None:
    status = pod.get("status", {})
    return status.get("podIP") if status.get("phase") == "Running" else None


def condition_of(job: Manifest, kind: str) -> Manifest | None:
    """The Job's condition of this type if it is True, else None."""
    conditions: list[Manifest] = job.get("status", {}).get("conditions") or []
    return next((c for c in conditions if c.get("type") == kind and c.get("status") == "True"), None)
