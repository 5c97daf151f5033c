"""Objects as the API server gives them, with what a test says of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
BLUE, GREEN = "7d9f8c6b54", "0c1d2e3f4a"
TOO_MANY_ERRORS = (
    "error rate 15.7% (8 of 51 requests) is above the limit of 2.0% (spec.rollout.observe.errorRate.max); "
    "1 in 4,100 by chance"
)
REJECTION = (
    f"revision {GREEN} was rolled back (ErrorRateTooHigh): {TOO_MANY_ERRORS}; change the spec, or `kubectl llm rollout "
    "restart` to try the same again"
)
NO_GPU = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."
SCHEDULER_SAYS = (
    "no node has 1 free nvidia.com/gpu; add nodes with it, free some, or lower spec.resources.accelerator.count (1). "
    f"Scheduler: {NO_GPU}"
)
UNRESPONSIVE = (
    f"pod chat-{BLUE}-a answered before, but has not answered since 2026-11-21T11:58:00Z; see its logs; the kubelet "
    "restarts the engine if the liveness probe fails too"
)
CONFLICT = (
    "requests for the model 'chat' go to team-b/chat: an older endpoint has the name; call this endpoint as "
    "'team-a/chat', or choose other names in spec.model.servedNames"
)
"""Texts of the operator, word for word; operator/tests/operator_unit/endpoint/test_shown_texts.py compares them."""


def condition(kind: str, status: bool, reason: str, message: str = "") -> Json:
    return {"type": kind, "status": str(status), "reason": reason, "message": message}


READY = condition("Ready", True, "AllReplicasReady", f"revision {BLUE} answers requests")


def endpoint(
    *conditions: Json,
    name: str = "chat",
    replicas: int = 2,
    generation: int = 3,
    annotations: Json | None = None,
    **status: Any,
) -> Json:
    """In namespace team-a, observed; `status` fields in camelCase."""
    return {
        "metadata": {
            "name": name, "namespace": "team-a", "generation": generation, "resourceVersion": "41",
            "annotations": annotations or {},
        },
        "spec": {"replicas": replicas},
        "status": {"observedGeneration": 3, "conditions": list(conditions), **status},
    }  # fmt: skip


def serving(**status: Any) -> Json:
    """One that has been rolled out."""
    whole = {
        "activeRevision": BLUE,
        "targetRevision": BLUE,
        "readyReplicas": 2,
        "url": "http://gateway.llm.svc/v1",
        **status,
    }
    return endpoint(READY, condition("Degraded", False, "AsExpected"), **whole)


def rolling(state: str, message: str = "", weights: tuple[int, int] = (100, 0), **status: Any) -> Json:
    """One with a rollout from blue to green."""
    shares = [{"revision": r, "weight": w} for r, w in zip((BLUE, GREEN), weights, strict=True) if w]
    rollout = {
        "state": state,
        "blue": BLUE,
        "green": GREEN,
        "mode": "Surge",
        "stateSince": "2026-11-21T11:59:20Z",
    }
    return serving(**{
        "activeRevision": BLUE if weights[0] >= weights[1] else GREEN,
        "targetRevision": GREEN,
        "traffic": {"epoch": 4, "weights": shares},
        "revisions": [{"name": BLUE, "replicas": 2, "readyReplicas": 2}, {"name": GREEN, "replicas": 2, "readyReplicas": 1}],
        "rollout": {**rollout, **({"message": message} if message else {})},
        **status,
    })  # fmt: skip


def pod(name: str, revision: str, owner: str = "chat", **status: Any) -> Json:
    labels = {"llmendpoint.io/endpoint": owner, "llmendpoint.io/revision": revision}
    metadata = {
        "name": name,
        "namespace": "team-a",
        "labels": labels,
        "creationTimestamp": "2026-11-21T11:55:00Z",
    }
    return {"metadata": metadata, "spec": {"nodeName": "node-1"}, "status": status}


def ready_pod(name: str, revision: str, **more: Any) -> Json:
    return pod(name, revision, phase="Running", conditions=[condition("Ready", True, "")], **more)


def loading_pod(name: str, revision: str) -> Json:
    conditions = [condition("PodScheduled", True, ""), condition("Ready", False, "ContainersNotReady")]
    return pod(name, revision, phase="Running", conditions=conditions)


def hanging_pod(name: str, revision: str, restarted: bool = False) -> Json:
    """Its engine was ready, and does not answer the kubelet any more since 11:58; `restarted`: it began anew after that."""
    ready = {**condition("Ready", False, "ContainersNotReady"), "lastTransitionTime": "2026-11-21T11:58:00Z"}
    began = "2026-11-21T11:58:30Z" if restarted else "2026-11-21T11:55:02Z"
    engine = {"name": "engine", "state": {"running": {"startedAt": began}}, "ready": False}
    conditions = [condition("PodScheduled", True, ""), ready]
    return pod(name, revision, phase="Running", conditions=conditions, containerStatuses=[engine])


def lease(renewed: str, holder: str = "llmendpoint-operator-1", namespace: str = "llm") -> Json:
    """That of an operator; `renewed` is a time of 2026-11-21."""
    spec = {
        "holderIdentity": holder,
        "renewTime": f"2026-11-21T{renewed}.000000Z",
        "leaseDurationSeconds": 15,
    }
    return {"metadata": {"name": "llmendpoint-operator", "namespace": namespace}, "spec": spec}


def unschedulable_pod(name: str, revision: str, message: str) -> Json:
    found = pod(
        name,
        revision,
        phase="Pending",
        conditions=[condition("PodScheduled", False, "Unschedulable", message)],
    )
    del found["spec"]["nodeName"]
    return found


def with_container(state: Json, last: Json | None = None, restarts: int = 0, phase: str = "Running") -> Json:
    """A pod of which the engine is in this state."""
    status = {"name": "engine", "state": state, "lastState": last or {}, "restartCount": restarts}
    return pod(
        "chat-x",
        BLUE,
        phase=phase,
        conditions=[condition("PodScheduled", True, "")],
        containerStatuses=[status],
    )


def record(number: int, revision: str, **inputs: Any) -> Json:
    """A ControllerRevision."""
    metadata = {
        "name": f"chat-{revision}", "namespace": "team-a", "creationTimestamp": "2026-11-21T09:00:00Z",
        "labels": {"llmendpoint.io/endpoint": "chat", "llmendpoint.io/revision": revision},
    }  # fmt: skip
    return {
        "metadata": metadata,
        "revision": number,
        "data": {"inputs": {"model": {"source": "embedded://demo"}, **inputs}},
    }
