"""The product, installed once for all end-to-end tests, and one endpoint that most of them share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import Cluster, wait_for
from tests.cluster import images as image_builds
from tests.demo import product as chart
from tests.demo.product import NAMESPACE as SYSTEM
from tests.e2e.product import NAMESPACE, START_LIMIT_S, Object, Product, is_ready

BATCH_CLAIM = "batch-data"
CHAT_SPEC: Object = {
    "model": {"source": "embedded://demo", "servedNames": ["chat"]},
    "replicas": 2,
    "resources": {"accelerator": {"kind": "nvidia.com/gpu", "count": 1}, "cpu": "50m", "memory": "3Gi"},
    "engine": {"device": "cpu", "maxNumSeqs": 16, "kvCacheMemory": "128Mi"},
    "rollout": {"scaleDownDelay": 2, "observe": {"duration": 5}},
    "terminationGracePeriodSeconds": 30,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = os.path.dirname(__file__)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(600))  # several starts of torch on two cores


@pytest.fixture(scope="session")
def product(node: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """The chart, installed by Helm with our images, in a namespace that enforces the restricted level.

    The gateway is reached through a node port of the cluster's own address: that level forbids host ports.
    """
    before = chart.installed_values(node)
    images = chart.load(node, image_builds.build_images(), image_builds.site_packages())
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    for name in (NAMESPACE, SYSTEM):
        node.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": restricted}}
        )
    node.apply(*images.volume(NAMESPACE))
    node.apply(*writable_volume(BATCH_CLAIM, tmp_path_factory.mktemp("batches"), SYSTEM))
    more: Object = {
        "gateway": {"replicas": 1, "service": {"type": "NodePort"}, "drainSeconds": 5},
        "batch": {"enabled": True, "storage": {"existingClaim": BATCH_CLAIM}},
    }
    chart.install(node, chart.merged(images.values(), more), tmp_path_factory.mktemp("helm"))
    wait_for("operator and gateway are ready", lambda: _platform_ready(node), START_LIMIT_S, every_s=0.5)
    [port] = node.get("service", "llmendpoint-gateway", "-n", SYSTEM)["spec"]["ports"]
    yield Product(node, f"http://{node.instance.address}:{port['nodePort']}")
    if os.environ.get("LLMENDPOINT_CLUSTER"):
        _clean(node, images, keep_release=before is not None)


@pytest.fixture(scope="session")
def chat(product: Product) -> str:
    """The endpoint `chat`: the demo model on two replicas, Ready. Tests leave it as they found it."""
    product.apply("chat", CHAT_SPEC)
    product.wait_settled("chat")
    return "chat"


def writable_volume(name: str, folder: Path, namespace: str) -> list[Object]:
    """A volume on the node's `folder`, and its claim, for one pod."""
    made = image_builds.local_volume(name, folder, namespace=namespace)
    for item in made:
        item["spec"]["accessModes"] = ["ReadWriteOnce"]
    return made


def _platform_ready(cluster: Cluster) -> bool:
    pods = cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component in (operator, gateway)")[
        "items"
    ]
    components = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}
    return components == {"operator", "gateway"} and all(is_ready(pod) for pod in pods)


def _clean(cluster: Cluster, images: chart.Images, keep_release: bool) -> None:
    """A borrowed cluster is left as it was."""
    cluster.kubectl("delete", "namespace", NAMESPACE, timeout=120)
    for volume in (images.volume(NAMESPACE)[0]["metadata"]["name"], f"{SYSTEM}-{BATCH_CLAIM}"):
        cluster.kubectl("delete", "persistentvolume", volume, "--wait=false")
    if not keep_release:
        cluster.helm("uninstall", chart.RELEASE, "--namespace", SYSTEM)
        cluster.kubectl("delete", "namespace", SYSTEM, timeout=120)
