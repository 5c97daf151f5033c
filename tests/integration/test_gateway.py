"""docs/contribute/contracts.md: what the gateway lists and watches at a real API server is what it routes by.

No request reaches a replica here (the API server refuses loopback addresses in slices, so the addresses are from a
documentation range): the gateway's own tests send traffic, and the end-to-end tests do it with real pods.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway, running_gateway
from tests.cluster import Cluster

pytestmark = pytest.mark.integration
CRD = Path(__file__).parents[2] / "crds" / "llmendpoints.llmendpoint.io.yaml"
CHAT = "/v1/chat/completions"


class Namespace:
    """Writes endpoints and slices as the operator and the EndpointSlice controller do."""

    def __init__(self, cluster: Cluster, gateway: Gateway, name: str) -> None:
        self.cluster, self.gateway, self.name = cluster, gateway, name

    def endpoint(self, name: str, revision: str | None, *served: str) -> None:
        model = {"source": "embedded://demo", **({"servedNames": list(served)} if served else {})}
        self.cluster.apply(
            {
                "apiVersion": "llmendpoint.io/v1alpha1",
                "kind": "LLMEndpoint",
                "metadata": {"name": name, "namespace": self.name},
                "spec": {"model": model},
            }
        )
        self.status(name, {"activeRevision": revision})

    def status(self, name: str, status: dict[str, Any]) -> None:
        patch = json.dumps({"status": status})
        self.cluster.kubectl(
            "patch",
            "llmendpoint",
            name,
            f"--namespace={self.name}",
            "--subresource=status",
            "--type=merge",
            f"--patch={patch}",
        )

    def slice(self, endpoint: str, revision: str, address: str, **conditions: bool) -> None:
        self.cluster.apply(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": f"{endpoint}-{revision}",
                    "namespace": self.name,
                    "labels": {"llmendpoint.io/endpoint": endpoint, "llmendpoint.io/revision": revision},
                },
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8000}],
                "endpoints": [{"addresses": [address], "conditions": conditions}],
            }
        )

    def delete(self, kind: str, name: str) -> None:
        self.cluster.kubectl("delete", kind, name, f"--namespace={self.name}", "--wait=false")

    def state(self, endpoint: str) -> dict[str, Any] | None:
        """The endpoint in /state once all that it says is acknowledged."""
        state = self.gateway.state()
        found: dict[str, Any] | None = state["endpoints"].get(f"{self.name}/{endpoint}")
        return found if state["generation"] == state["acknowledged"] else None

    def ask(self, model: str) -> httpx.Response:
        return httpx.post(self.gateway.url + CHAT, json={"model": model}, timeout=30)


@pytest.fixture(scope="module")
def namespace(control_plane: Cluster) -> Iterator[Namespace]:
    control_plane.apply(yaml.safe_load(CRD.read_text()))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "llmendpoints.llmendpoint.io")
    name = f"gateway-{os.getpid()}"
    control_plane.kubectl("create", "namespace", name)
    with running_gateway(control_plane.kubeconfig) as gateway:
        yield Namespace(control_plane, gateway, name)
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


def test_an_endpoint_and_its_slices_are_routed_and_a_switch_is_acknowledged(namespace: Namespace) -> None:
    namespace.endpoint("chat", None)
    wait_for(lambda: namespace.state("chat"), "the endpoint is known")
    assert namespace.ask(f"{namespace.name}/chat").json()["error"]["code"] == "no_ready_replica"
    namespace.slice("chat", "r1", "192.0.2.1", ready=True)
    namespace.endpoint("chat", "r1")
    expected = {
        "address": "192.0.2.1:8000",
        "pod": "192.0.2.1",
        "revision": "r1",
        "ready": True,
        "draining": False,
        "in_flight": 0,
        "sockets": 0,
        "breaker": "closed",
    }
    wait_for(
        lambda: (
            (state := namespace.state("chat"))
            and state["activeRevision"] == "r1"
            and state["replicas"] == [expected]
        ),
        "r1 is acknowledged",
    )
    assert f"{namespace.name}/chat/r1" in namespace.gateway.clusters()
    namespace.slice("chat", "r2", "192.0.2.2", ready=True)
    namespace.endpoint("chat", "r2")
    namespace.delete("endpointslice", "chat-r1")
    wait_for(
        lambda: (
            (state := namespace.state("chat"))
            and state["activeRevision"] == "r2"
            and [replica["address"] for replica in state["replicas"]] == ["192.0.2.2:8000"]
        ),
        "r2 is acknowledged and r1 gone",
    )
    assert f"{namespace.name}/chat/r1" not in namespace.gateway.clusters()


def test_an_epoch_is_followed_once_all_its_revisions_are_there_and_drains_at_once(
    namespace: Namespace,
) -> None:
    def traffic(epoch: int, draining: list[str], **weights: int) -> None:
        shares = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        namespace.status("canary", {"traffic": {"epoch": epoch, "weights": shares, "draining": draining}})

    def follows(epoch: int) -> bool:
        state = namespace.state("canary")
        return state is not None and state["epoch"] == epoch

    def known() -> int:
        state = namespace.state("canary")
        return len(state["replicas"]) if state is not None else 0

    namespace.slice("canary", "r1", "192.0.2.11", ready=True)
    namespace.endpoint("canary", "r1")
    traffic(1, [], r1=100)
    wait_for(lambda: follows(1), "epoch 1")
    traffic(2, [], r1=90, r2=10)
    namespace.slice("canary", "r2", "192.0.2.12", ready=False)
    wait_for(lambda: known() == 2, "r2 is known")
    assert follows(1)
    namespace.slice("canary", "r2", "192.0.2.12", ready=True)
    wait_for(lambda: follows(2), "epoch 2")
    traffic(3, ["192.0.2.12"], r1=90, r2=10)
    wait_for(lambda: follows(3), "epoch 3")
    state = namespace.state("canary")
    assert state is not None
    assert state["weights"] == {"r1": 90, "r2": 10}
    assert [replica["draining"] for replica in state["replicas"]] == [False, True]


def test_a_replica_that_is_not_ready_is_not_routed(namespace: Namespace) -> None:
    namespace.slice("cold", "r1", "192.0.2.3", ready=False)
    namespace.endpoint("cold", "r1")
    wait_for(
        lambda: (state := namespace.state("cold")) and state["activeRevision"] and state["replicas"],
        "the replica is known",
    )
    response = namespace.ask(f"{namespace.name}/cold")
    assert response.status_code == 503
    assert response.headers["retry-after"]


def test_a_bare_name_goes_to_the_oldest_claim_and_to_the_next_when_that_is_deleted(
    namespace: Namespace,
) -> None:
    namespace.endpoint("z-older", None, "shared")
    time.sleep(1.1)  # creationTimestamp has whole seconds; of equals the first by name would win
    namespace.endpoint("a-newer", None, "shared")
    wait_for(lambda: namespace.state("a-newer"), "both are known")

    def owner() -> str:
        models = httpx.get(f"{namespace.gateway.url}/v1/models").json()["data"]
        found: str = next((model["owned_by"] for model in models if model["id"] == "shared"), "")
        return found

    assert owner() == f"{namespace.name}/z-older"
    namespace.delete("llmendpoint", "z-older")
    wait_for(lambda: owner() == f"{namespace.name}/a-newer", "the name falls to the next claim")
    assert namespace.ask(f"{namespace.name}/z-older").status_code == 404
