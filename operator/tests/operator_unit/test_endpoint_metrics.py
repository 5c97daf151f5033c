"""docs/reference/metrics.md: what the operator knows of each endpoint is in its metrics, and leaves with the endpoint."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from llmendpoint_operator.endpoint_metrics import EndpointStates

CHAT: dict[str, Any] = {
    "metadata": {"namespace": "team", "name": "chat"},
    "spec": {"replicas": 3, "autoscaling": {"signals": {"ttft": {"target": 1.5}}}},
    "status": {
        "replicas": 3,
        "readyReplicas": 2,
        "activeRevision": "aa",
        "targetRevision": "bb",
        "traffic": {"weights": [{"revision": "aa", "weight": 90}, {"revision": "bb", "weight": 10}]},
        "rollout": {"state": "Observing"},
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "ScalingBlind", "status": "Unknown"},
            {"type": "CircuitOpen", "status": "True"},
        ],
    },
}


def values(*endpoints: dict[str, Any]) -> dict[tuple[str, ...], float]:
    """(name, values of further labels) -> value, of endpoint team/chat."""
    registry = CollectorRegistry()
    registry.register(EndpointStates(lambda: endpoints))
    found = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = dict(sample.labels)
            assert (labels.pop("namespace"), labels.pop("llmendpoint")) == ("team", "chat")
            name = sample.name.removeprefix("llmendpoint_operator_")
            found[name, *labels.values()] = sample.value
    return found


def test_an_endpoint_is_shown_with_its_replicas_revisions_rollout_and_conditions() -> None:
    assert values(CHAT) == {
        ("condition", "Ready"): 1,
        ("condition", "ScalingBlind"): 0,
        ("condition", "CircuitOpen"): 1,
        ("replicas_wanted",): 3,
        ("replicas",): 3,
        ("replicas_ready",): 2,
        ("revision_info", "aa", "active"): 1,
        ("revision_info", "bb", "target"): 1,
        ("traffic_weight", "aa"): 90,
        ("traffic_weight", "bb"): 10,
        ("rollout_state", "Observing"): 1,
        ("first_token_target_seconds",): 1.5,
    }


def test_an_endpoint_without_a_status_is_not_ready_and_has_no_pods() -> None:
    assert values({"metadata": CHAT["metadata"], "spec": {}}) == {
        ("condition", "Ready"): 0,
        ("replicas_wanted",): 1,
        ("replicas",): 0,
        ("replicas_ready",): 0,
    }


def test_a_deleted_endpoint_leaves_nothing() -> None:
    assert values() == {}


@pytest.mark.parametrize(
    "status", [{"conditions": 7}, {"rollout": []}, {"traffic": {"weights": [1]}}, {"replicas": "x"}]
)
def test_a_status_of_another_version_is_no_error(status: dict[str, Any]) -> None:
    assert values({**CHAT, "status": status})["condition", "Ready"] == 0
