"""docs/contribute/contracts.md: the PodDisruptionBudget protects an endpoint's pods, and the NetworkPolicy says who reaches them."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.api.security import SecuritySpec
from llmendpoint_operator.core.endpoint.plan import Apply, WriteStatus
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.core.pods.neighbours import Neighbours
from llmendpoint_operator.core.pods.policies import make_disruption_budget, make_network_policy

from ..fake_cluster import FakeCluster, make_spec

OWNER = Owner("team-a", "chat", "uid-1")
NEIGHBOURS = Neighbours(operator="llm", gateway="edge", prometheus="monitoring")


def peers(security: dict[str, Any]) -> list[dict[str, Any]]:
    policy = make_network_policy(OWNER, SecuritySpec.model_validate(security), NEIGHBOURS)
    [rule] = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": "http", "protocol": "TCP"}]
    found: list[dict[str, Any]] = rule["from"]
    return found


def from_namespace(namespace: str, app: str) -> dict[str, Any]:
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": app}},
    }


def selected(cluster: FakeCluster) -> str:
    budget = cluster.of_kind("PodDisruptionBudget")["chat"]
    assert budget["spec"]["maxUnavailable"] == 1
    return str(budget["spec"]["selector"]["matchLabels"]["llmendpoint.io/revision"])


def test_the_gateway_the_operator_and_prometheus_are_always_admitted() -> None:
    assert peers({}) == [
        from_namespace("edge", "llmendpoint-gateway"),
        from_namespace("llm", "llmendpoint-operator"),
        from_namespace("monitoring", "prometheus"),
    ]


def test_allowed_clients_are_admitted_as_they_are_written() -> None:
    clients: list[dict[str, Any]] = [
        {"namespaceSelector": {"matchLabels": {"team": "b"}}},
        {"podSelector": {"matchLabels": {"app": "web"}}},
        {"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}},
        {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}},
    ]
    assert peers({"allowedClients": clients})[3:] == clients


def test_the_policy_holds_for_the_pods_of_every_revision() -> None:
    policy = make_network_policy(OWNER, SecuritySpec(), NEIGHBOURS)
    assert policy["spec"]["podSelector"] == {"matchLabels": {"llmendpoint.io/endpoint": "chat"}}
    assert policy["spec"]["policyTypes"] == ["Ingress"]


def test_a_narrowed_list_of_clients_is_written_and_a_steady_one_is_not() -> None:
    wide: dict[str, Any] = {"allowedClients": [{"namespaceSelector": {}}]}
    narrow: dict[str, Any] = {
        "allowedClients": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}]
    }
    cluster = FakeCluster(make_spec(security=narrow), neighbours=NEIGHBOURS)
    cluster.settle()
    for security in (wide, narrow, {}):
        cluster.edit(make_spec(security=security))
        cluster.settle()
        live = cluster.of_kind("NetworkPolicy")["chat"]
        assert live == make_network_policy(OWNER, SecuritySpec.model_validate(security), NEIGHBOURS)
    assert cluster.plan().steps == ()


def test_clients_are_no_part_of_a_revision() -> None:
    cluster = FakeCluster(neighbours=NEIGHBOURS)
    cluster.settle()
    before = cluster.target
    cluster.edit(make_spec(security={"allowedClients": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}))
    cluster.settle()
    assert cluster.target == before


def test_the_policy_is_there_before_the_first_pod() -> None:
    kinds = [
        s.manifest["kind"] for s in FakeCluster(neighbours=NEIGHBOURS).plan().steps if isinstance(s, Apply)
    ]
    assert kinds.index("NetworkPolicy") < kinds.index("Deployment")


def test_the_budget_selects_no_pod_before_a_revision_is_active() -> None:
    cluster = FakeCluster()
    cluster.settle()
    assert selected(cluster) == "none"


@pytest.mark.parametrize("replicas", [1, 3])
def test_the_budget_stays_with_the_active_revision_and_follows_the_switch(replicas: int) -> None:
    cluster = FakeCluster(make_spec(replicas=replicas))
    cluster.settle()
    first = cluster.target
    cluster.make_ready(first)
    cluster.settle()
    assert selected(cluster) == first
    cluster.edit(make_spec(replicas=replicas, engine={"maxNumSeqs": 2}))
    cluster.settle()
    assert cluster.target != first
    assert selected(cluster) == first, "while the new revision comes up, the old one serves and is protected"


def budget_steps(cluster: FakeCluster) -> list[Apply]:
    return [
        s
        for s in cluster.plan().steps
        if isinstance(s, Apply) and s.manifest["kind"] == "PodDisruptionBudget"
    ]


def test_the_budget_moves_after_the_status_that_decides_on_it() -> None:
    cluster = FakeCluster()
    cluster.settle()
    cluster.make_ready(cluster.target)
    steps = cluster.plan().steps
    status = next(i for i, s in enumerate(steps) if isinstance(s, WriteStatus))
    [budget] = budget_steps(cluster)
    assert steps.index(budget) > status
    assert budget.manifest["spec"]["selector"]["matchLabels"]["llmendpoint.io/revision"] == cluster.target


def test_a_pod_that_is_not_ready_never_holds_up_a_drain() -> None:
    assert make_disruption_budget(OWNER, "abc")["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
