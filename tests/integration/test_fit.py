"""docs/concepts/sizing.md: CapacityFits follows the nodes' labels, the hub, and the Job that reads a claim, on a real API server.

The test plays the Job's pod.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import Cluster
from tests.hub_stub import MODEL, Hub
from tests.integration.namespace import Namespace
from tests.integration.operator_process import OperatorProcess

pytestmark = pytest.mark.integration

COMMIT = "1" * 40
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 8,
    "num_hidden_layers": 8, "intermediate_size": 2048, "vocab_size": 32000, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}  # fmt: skip
KNOWN = {
    "architecture": "LlamaForCausalLM", "attention": [{"layers": 32, "width": 2048, "split": 8}], "heads": 32,
    "hidden": 4096, "intermediate": 14336, "vocabulary": 128256, "context": 131072, "dtype": "bfloat16",
    "parameters": 8030261248, "activeParameters": 8030261248, "weights": {"BF16": 16060522496},
}  # fmt: skip


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(b"x" * 1000)
    found = Hub({COMMIT: folder}, main=COMMIT)
    yield found
    found.close()


@pytest.fixture(scope="module")
def operator(prepared: Cluster, hub: Hub) -> Iterator[OperatorProcess]:
    with OperatorProcess(
        prepared, "--hub-endpoint", hub.url, "--probe-image", "localhost/operator:1"
    ) as found:
        yield found


class Node:
    """A node with the NVIDIA labels and one accelerator of a kind."""

    def __init__(self, cluster: Cluster, name: str, kind: str = "nvidia.com/gpu") -> None:
        self.cluster, self.name = cluster, name
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        status = json.dumps({"status": {"capacity": {kind: "1"}, "allocatable": {kind: "1"}}})
        cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)

    def label(self, product: str, mebibytes: int) -> None:
        labels = (f"nvidia.com/gpu.product={product}", f"nvidia.com/gpu.memory={mebibytes}")
        self.cluster.kubectl("label", "node", self.name, "--overwrite", *labels)


@pytest.fixture
def node(prepared: Cluster) -> Iterator[Node]:
    found = Node(prepared, "fit-node")
    yield found
    prepared.kubectl("delete", "node", found.name)


def resources(**accelerator: Any) -> dict[str, Any]:
    return {"accelerator": {"kind": "nvidia.com/gpu", **accelerator}}


def test_a_model_of_the_hub_against_what_the_nodes_say(
    operator: OperatorProcess, namespace: Namespace, node: Node
) -> None:
    namespace.apply(model={"source": f"hf://{MODEL}"}, resources=resources())
    asked = namespace.wait_condition("CapacityFits", "Unknown", "AcceleratorUnknown")
    assert "resources.accelerator.memory (such as 24Gi)" in asked["message"]
    node.label("NVIDIA-Tiny", 512)
    refused = namespace.wait_condition("CapacityFits", "False", "WeightsTooLarge")
    assert "NVIDIA-Tiny" in refused["message"]
    node.label("NVIDIA-L4", 23034)
    namespace.wait_condition("CapacityFits", "True", "Fits")
    assert namespace.status()["capacity"]["model"]["weights"] == {"BF16": 1000}
    revision = namespace.status()["targetRevision"]
    namespace.apply(model={"source": f"hf://{MODEL}"}, resources=resources(memory="1Gi"))
    namespace.wait_condition("CapacityFits", "False", "WeightsTooLarge")
    assert namespace.target() == revision
    assert len(namespace.wait_events("CapacityTooSmall", count=2)) == 2


def test_a_job_reads_a_claim_and_what_it_found_outlives_it_and_the_operator(
    prepared: Cluster, operator: OperatorProcess, namespace: Namespace
) -> None:
    spec = {"model": {"source": "pvc://models/chat"}, "engine": {"maxModelLen": 8192, "maxNumSeqs": 4}}
    namespace.apply(**spec, resources=resources(product="t4"))
    pod = _job_pod(namespace)
    assert pod["spec"]["containers"][0]["args"][0] == "/models/models/chat"
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "models", "readOnly": True}
    ended = {
        "exitCode": 0,
        "message": json.dumps(KNOWN),
        "finishedAt": "2026-01-01T00:00:00Z",
        "startedAt": "2026-01-01T00:00:00Z",
    }
    container = {
        "name": "inspect",
        "image": "a",
        "imageID": "a",
        "ready": False,
        "restartCount": 0,
        "state": {"terminated": ended},
    }
    namespace.write_pod_status(
        pod["metadata"]["name"], {"phase": "Succeeded", "containerStatuses": [container]}
    )
    found = namespace.wait_condition("CapacityFits", "False", "WeightsTooLarge")
    assert "weights 16.1 GB + overhead 3.2 GB of 16.1 GB" in found["message"]
    prepared.wait_for("the Job to be deleted", lambda: namespace.items("jobs") == [], 30)
    namespace.apply(**spec, resources=resources(product="l4"))
    namespace.wait_condition("CapacityFits", "True", "Fits")
    operator.settle()
    assert namespace.items("jobs") == []
    assert "1 x l4" in namespace.condition("CapacityFits")["message"]


def _job_pod(namespace: Namespace) -> dict[str, Any]:
    def found() -> dict[str, Any] | None:
        items = namespace.get("pods", "-l", "llmendpoint.io/inspects")["items"]
        return items[0] if items else None

    pod: dict[str, Any] = namespace.cluster.wait_for("the pod of the Job", found, 30)
    return pod


def test_a_job_that_a_quota_refuses_holds_nothing_up(operator: OperatorProcess, namespace: Namespace) -> None:
    quota = {"spec": {"hard": {"count/jobs.batch": "0"}}}
    namespace.cluster.apply({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": namespace.name}, **quota,
    })  # fmt: skip
    namespace.cluster.wait_for(
        "the quota to be counted",
        lambda: namespace.get("resourcequota", "none").get("status", {}).get("hard"),
        30,
    )
    namespace.apply(model={"source": "pvc://models/chat"}, resources=resources(product="l4"))
    found = namespace.wait_condition("CapacityFits", "Unknown", "ModelNotReadable")
    assert "exceeded quota" in found["message"]
    assert namespace.condition("Degraded")["reason"] != "Refused"
    assert namespace.bring_up(1)


def test_a_product_that_is_not_known_is_a_condition_and_an_amount_that_is_none_is_refused(
    operator: OperatorProcess, namespace: Namespace
) -> None:
    namespace.apply(model={"source": f"hf://{MODEL}"}, resources=resources(product="H900"))
    found = namespace.wait_condition("CapacityFits", "Unknown", "AcceleratorUnknown")
    assert found["message"].startswith("resources.accelerator.product H900: known are t4,")
    with pytest.raises(Exception, match="memory"):
        namespace.apply(resources=resources(memory="24 gigabytes"))
