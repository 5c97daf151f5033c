"""What a test that plays the kubelet writes of a pod, and reads."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

TAKEN = "2026-01-01T00:00:00Z"
"""When every node took its pod."""


def running(address: str, *, ready: bool, crashed: bool = False) -> Json:
    """What a kubelet writes of a running pod. Its engine crashes after it was ready, and is ready after it was not."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    changed = now if ready or crashed else TAKEN
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": TAKEN},
        {"type": "Initialized", "status": "True", "lastTransitionTime": TAKEN},
        {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": changed},
    ]
    ended = {"exitCode": 1, "reason": "Error", "message": "device lost", "finishedAt": now}
    container = {
        "name": "engine", "image": "e:1", "imageID": "e", "ready": ready, "restartCount": int(crashed),
        "state": {"terminated": ended} if crashed else {"running": {}},
    }  # fmt: skip
    return {
        "phase": "Running", "conditions": conditions, "podIP": address, "podIPs": [{"ip": address}],
        "containerStatuses": [container],
    }  # fmt: skip


def pending(reason: str) -> Json:
    """What the scheduler writes of a pod that it finds no node for, or that has a scheduling gate."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    message = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
    scheduled = {
        "type": "PodScheduled", "status": "False", "reason": reason, "message": message, "lastTransitionTime": now,
    }  # fmt: skip
    return {
        "phase": "Pending", "conditions": [scheduled], "podIP": None, "podIPs": None, "containerStatuses": None,
    }  # fmt: skip


def holds(live: Json, wanted: Json) -> bool:
    """Whether a status says what is to be said."""

    def conditions(status: Json) -> set[tuple[str, str]]:
        return {(c["type"], c["status"]) for c in status.get("conditions") or ()}

    return live.get("podIP") == wanted.get("podIP") and conditions(live) == conditions(wanted)


def revision_of(pod: Json) -> str:
    """By its label."""
    return str(pod["metadata"]["labels"]["llmendpoint.io/revision"])


def is_ready(pod: Json) -> bool:
    """By its condition."""
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
