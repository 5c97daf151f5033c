"""docs/contribute/contracts.md: what is not an endpoint's own is left byte for byte as it is, and outlives the endpoint."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration

PORTS = [{"name": "web", "port": 5432, "targetPort": 5432, "protocol": "TCP"}]
LABELS = {
    "app.kubernetes.io/managed-by": "llmendpoint-operator",
    "app.kubernetes.io/name": "llmendpoint",
    "llmendpoint.io/endpoint": "chat",
}


def manifest(kind: str, name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    """Somebody's own object."""
    api, spec = {
        "Service": ("v1", {"spec": {"selector": {"app": "postgres"}, "ports": PORTS}}),
        "ServiceAccount": ("v1", {"automountServiceAccountToken": True}),
        "NetworkPolicy": ("networking.k8s.io/v1", {"spec": {"podSelector": {"matchLabels": {"app": "x"}}}}),
        "PodDisruptionBudget": (
            "policy/v1",
            {"spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "x"}}}},
        ),
        "HorizontalPodAutoscaler": ("autoscaling/v2", {"spec": AUTOSCALER}),
    }[kind]
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels or {}}, **spec}


AUTOSCALER = {
    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "theirs"},
    "maxReplicas": 7,
}


def make(namespace: Namespace, item: dict[str, Any]) -> Callable[[], str]:
    """Make the object, and say how to read all of it."""
    namespace.cluster.apply({**item, "metadata": {**item["metadata"], "namespace": namespace.name}})
    kind, name = item["kind"], item["metadata"]["name"]

    def bytes_of() -> str:
        found = namespace.get(kind, name)
        found.pop("status", None)  # written by Kubernetes' own controllers
        for field in ("managedFields", "resourceVersion", "generation"):
            found["metadata"].pop(field, None)
        return json.dumps(found, sort_keys=True)

    return bytes_of


@pytest.mark.parametrize("labels", [None, LABELS], ids=["without labels", "with our labels"])
@pytest.mark.parametrize(
    "kind", ["Service", "ServiceAccount", "NetworkPolicy", "PodDisruptionBudget", "HorizontalPodAutoscaler"]
)
def test_an_object_with_a_childs_name_is_left_alone_and_outlives_the_endpoint(
    operator: OperatorProcess, namespace: Namespace, kind: str, labels: dict[str, str] | None
) -> None:
    theirs = make(namespace, manifest(kind, "chat", labels))
    before = theirs()
    scaled = {"autoscaling": {"provider": "hpa", "maxReplicas": 2, "signals": {"queueDepth": {"target": 4}}}}
    namespace.apply(**(scaled if kind == "HorizontalPodAutoscaler" else {}))
    said = namespace.wait_condition("NotOwned", "True")["message"]
    assert f"{kind} chat" in said
    assert "delete or rename it" in said
    assert namespace.wait_condition("Degraded", "True", "NotOwned")
    operator.settle()
    assert theirs() == before
    if kind in ("ServiceAccount", "NetworkPolicy"):
        assert namespace.items("deployments") == [], "no pod runs as an account of somebody else"
    namespace.cluster.kubectl("delete", "llm/chat", "-n", namespace.name, "--timeout=30s")
    namespace.cluster.wait_for("its children to go", lambda: not namespace.items("deployments"), 90)
    assert theirs() == before


def test_an_endpoint_goes_on_when_the_object_in_its_way_is_gone(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    make(namespace, manifest("ServiceAccount", "chat"))
    namespace.apply()
    namespace.wait_condition("NotOwned", "True")
    namespace.cluster.kubectl("delete", "serviceaccount", "chat", "-n", namespace.name)
    namespace.bring_up(1)
    namespace.wait_condition("Ready", "True")
    assert namespace.condition("NotOwned") == {}


def test_a_service_that_is_not_ours_does_not_keep_the_pods_from_serving(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    make(namespace, manifest("Service", "chat"))
    namespace.apply()
    namespace.bring_up(1)
    assert namespace.wait_condition("Ready", "True")
    assert namespace.condition("Degraded")["reason"] == "NotOwned"


def test_an_endpoint_that_is_made_again_waits_for_garbage_collection_and_says_nothing_of_strangers(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    namespace.bring_up(1)
    before = {i["metadata"]["uid"] for kind in ("services", "deployments") for i in namespace.items(kind)}
    namespace.cluster.kubectl("delete", "llm/chat", "-n", namespace.name)
    namespace.apply()
    namespace.cluster.wait_for(
        "children of its own",
        lambda: (
            len(namespace.items("deployments")) == 1
            and before.isdisjoint(
                i["metadata"]["uid"] for kind in ("services", "deployments") for i in namespace.items(kind)
            )
        ),
        30,
    )
    namespace.bring_up(1)
    assert namespace.condition("NotOwned") == {}
    assert not [e for e in namespace.get("events")["items"] if e["reason"] == "ChildRestored"]


def test_labels_that_a_hand_took_off_are_put_back(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.bring_up(1)
    patch = '[{"op": "remove", "path": "/metadata/labels"}]'
    namespace.cluster.kubectl("patch", "service/chat", "-n", namespace.name, "--type=json", "-p", patch)
    namespace.cluster.wait_for(
        "the labels", lambda: namespace.get("service", "chat")["metadata"].get("labels"), 30
    )
    assert namespace.condition("NotOwned") == {}
