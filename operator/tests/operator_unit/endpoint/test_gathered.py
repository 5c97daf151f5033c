"""docs/concepts/sizing.md: a Job reads a model's files on a claim; its pod is no replica, and nobody counts it as one."""

from __future__ import annotations

from typing import Any

from llmendpoint_operator.core.capacity.inspection import INSPECTS_LABEL
from llmendpoint_operator.core.names import ENDPOINT_LABEL, REVISION_LABEL
from llmendpoint_operator.gather import Platform, gather
from llmendpoint_operator.kube import resources

from .test_one_endpoints_faults import caches, endpoint


def ready_pod(name: str, **marks: str) -> dict[str, Any]:
    labels = {ENDPOINT_LABEL: "chat", "app.kubernetes.io/managed-by": "llmendpoint-operator", **marks}
    return {
        "metadata": {"namespace": "team-a", "name": name, "uid": name, "resourceVersion": "1", "labels": labels},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip


def test_the_pod_of_an_inspection_is_none_of_the_endpoints_pods() -> None:
    """It has no revision. A new endpoint has no active revision either, and was Ready while that pod ran."""
    of = caches(endpoint("chat"), runtime={})
    engine = ready_pod("chat-5b4d08ba0a-x", **{REVISION_LABEL: "5b4d08ba0a"})
    inspecting = ready_pod("chat-inspect-x", **{INSPECTS_LABEL: "5b4d08ba0a"})
    of.informers[resources.PODS].store.replace([engine, inspecting], "1")
    assert gather(of, endpoint("chat"), Platform()).pods == {"5b4d08ba0a": (engine,)}
