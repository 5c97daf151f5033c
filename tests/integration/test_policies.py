"""docs/contribute/contracts.md: the budget lets one active pod go at a time, and the NetworkPolicy admits whom the spec names.

The API server is real; the test plays the kubelet.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.cluster.errors import CommandFailed
from tests.integration.namespace import READY, Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration


def evict(namespace: Namespace, pod: str) -> None:
    """What `kubectl drain` does; raises CommandFailed when the budget does not allow it."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace.name},
    }
    path = f"/api/v1/namespaces/{namespace.name}/pods/{pod}/eviction"
    namespace.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))


def allowed(namespace: Namespace) -> int:
    """Disruptions that the budget allows, once the controller has seen its latest form."""

    def found() -> dict[str, Any] | None:
        budget = namespace.get("poddisruptionbudget", "chat")
        seen = budget.get("status", {}).get("observedGeneration") == budget["metadata"]["generation"]
        return budget["status"] if seen else None

    status: dict[str, Any] = namespace.cluster.wait_for("the budget to be computed", found, 30)
    return int(status["disruptionsAllowed"])


def wait_allowed(namespace: Namespace, count: int) -> None:
    namespace.cluster.wait_for(f"{count} disruptions to be allowed", lambda: allowed(namespace) == count, 30)


def test_a_drain_takes_one_pod_of_the_active_revision_at_a_time(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(replicas=3)
    first, second, _ = namespace.pods(namespace.bring_up(3), 3)
    wait_allowed(namespace, 1)
    evict(namespace, first)
    with pytest.raises(CommandFailed, match="disruption budget"):
        evict(namespace, second)


def test_a_drain_does_not_wait_for_ever_at_one_replica(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply()
    [pod] = namespace.pods(namespace.bring_up(1), 1)
    wait_allowed(namespace, 1)
    evict(namespace, pod)


def test_a_pod_that_is_not_ready_may_always_go(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply(replicas=2)
    first, second = namespace.pods(namespace.target(), 2)
    namespace.write_pod_status(
        first, {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}
    )
    for pod in (first, second):
        evict(namespace, pod)


def test_while_a_revision_comes_up_the_old_one_keeps_its_budget(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(replicas=2)
    first = namespace.bring_up(2)
    namespace.apply(replicas=2, engine={"maxNumSeqs": 4})
    green = namespace.pods(namespace.target(), 2)
    wait_allowed(namespace, 1)
    blue = namespace.pods(first, 2)
    namespace.write_pod_status(green[0], READY)
    evict(namespace, green[0])
    evict(namespace, blue[0])
    with pytest.raises(CommandFailed, match="disruption budget"):
        evict(namespace, blue[1])


def test_the_budget_follows_the_switch(operator: OperatorProcess, namespace: Namespace) -> None:
    namespace.apply()
    namespace.bring_up(1)
    namespace.apply(engine={"maxNumSeqs": 4})
    second = namespace.bring_up(1)

    def selected() -> str:
        budget = namespace.get("poddisruptionbudget", "chat")
        return str(budget["spec"]["selector"]["matchLabels"]["llmendpoint.io/revision"])

    namespace.cluster.wait_for("the budget to select the new revision", lambda: selected() == second, 30)


def test_allowed_clients_reach_the_policy_and_the_api_server_takes_it(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    def peers() -> list[dict[str, Any]]:
        policies = namespace.items("networkpolicies")
        found: list[dict[str, Any]] = policies[0]["spec"]["ingress"][0]["from"] if policies else []
        return found[3:]

    for clients in (
        [
            {
                "namespaceSelector": {"matchLabels": {"team": "b"}},
                "podSelector": {"matchLabels": {"app": "web"}},
            }
        ],
        [{"namespaceSelector": {"matchLabels": {"team": "b"}}}],
        [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}, {"podSelector": {}}],
        [],
    ):
        namespace.apply(security={"allowedClients": clients})
        namespace.cluster.wait_for(f"the policy to admit {clients}", lambda c=clients: peers() == c, 30)  # type: ignore[misc]
    operator.settle()


@pytest.mark.parametrize(
    ("client", "complaint"),
    [
        ({}, "either ipBlock, or namespaceSelector"),
        ({"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}, "either ipBlock, or namespaceSelector"),
        ({"ipBlock": {"cidr": "10.0.0"}}, "an address and a prefix length"),
    ],
)
def test_a_client_that_says_nothing_or_two_things_is_refused(
    operator: OperatorProcess, namespace: Namespace, client: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(CommandFailed, match=complaint):
        namespace.apply(security={"allowedClients": [client]})


def test_engine_pods_keep_to_the_restricted_pod_security_level(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    """The namespace refuses what does not: the Deployment's pods are there, and none was refused."""
    label = "pod-security.kubernetes.io/enforce=restricted"
    namespace.cluster.kubectl("label", "namespace", namespace.name, label)
    namespace.apply(replicas=2)
    revision = namespace.target()
    namespace.pods(revision, 2)
    [deployment] = namespace.items("deployments")
    pod = {**deployment["spec"]["template"], "apiVersion": "v1", "kind": "Pod"}
    pod["metadata"] = {"name": "loose", "namespace": namespace.name}
    pod["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(CommandFailed, match="violates PodSecurity"):
        namespace.cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(pod))
