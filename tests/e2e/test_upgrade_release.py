"""docs/decisions/revisions-are-hashed.md: an upgrade from the release before restarts no engine and loses no request.

The earlier chart and the images of its operator, gateway and engine are built from the git history. The steps are those
that the docs give to users, while callers send requests.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.cluster import Cluster, start_node, wait_for
from tests.cluster import images as image_builds
from tests.demo import product as chart
from tests.demo.product import NAMESPACE as SYSTEM
from tests.demo.product import ROOT, Images, Values
from tests.e2e.product import NAMESPACE, START_LIMIT_S, Object, Product, is_ready
from tests.e2e.traffic import flowing

RELEASE_BEFORE = "1949376b6a528ea17808d268ade3d4bd926f580c"
PARTS = ("operator", "gateway", "simulator")
PER_SECOND = 5
SIMULATED: Object = {
    "model": {"source": "embedded://none"},
    "replicas": 2,
    "resources": {"cpu": "20m", "memory": "256Mi"},
    "terminationGracePeriodSeconds": 30,
}
PLAIN: Object = {**SIMULATED, "runtime": {"name": "simulator", "args": ["--ttft=0.02", "--itl=0.002"]}}
PROVEN: Object = {**SIMULATED, "runtime": {"name": "proven", "args": ["--ttft=0.02", "--itl=0.002"]}}
"""Its pods have the sidecar that makes a generation, from the operator's image."""
ENDPOINTS = {"plain": PLAIN, "proven": PROVEN}


@pytest.fixture
def release_before(tmp_path: Path) -> Path:
    """A checkout of it."""
    known = subprocess.run(
        ["git", "cat-file", "-e", f"{RELEASE_BEFORE}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if known.returncode:
        pytest.skip(f"the git history has no {RELEASE_BEFORE[:7]}: a shallow clone? `git fetch --unshallow`")
    folder = tmp_path / "before"
    folder.mkdir()
    archive = tmp_path / "before.tar"
    subprocess.run(["git", "archive", "--output", archive, RELEASE_BEFORE], cwd=ROOT, check=True)
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)
    return folder


@pytest.fixture
def own_node(fresh_machine: None) -> Iterator[Cluster]:
    """The chart's cluster-wide objects are of another version here than in the other tests' cluster."""
    cluster = start_node(f"test-{os.getpid()}-upgrade")
    yield cluster
    cluster.stop()


def load_images(cluster: Cluster, root: Path) -> Images:
    """Operator, gateway and simulator of a checkout, on the node."""
    wanted = [image for image in image_builds.IMAGES if image.part in PARTS]
    archives = image_builds.build_images(wanted, root)
    return chart.load(cluster, {**archives, "server": archives["simulator"]}, site_packages=None)


def values(images: Images) -> Values:
    """As the chart has them, so two gateways; a drain that a test can wait for."""
    gateway = {"service": {"type": "NodePort"}, "drainSeconds": 10}
    return chart.merged(images.values(), {"gateway": gateway, "runtime": {"install": False}})


def platform(cluster: Cluster) -> list[Object]:
    selector = "app.kubernetes.io/component in (operator, gateway)"
    return list(cluster.get("pods", "-n", SYSTEM, "-l", selector)["items"])


def runs(cluster: Cluster, images: Images) -> bool:
    """Whether an operator and two gateways of these images are Ready, and no others are left."""
    pods = platform(cluster)
    used = {container["image"] for pod in pods for container in pod["spec"]["containers"]}
    return len(pods) == 3 and all(map(is_ready, pods)) and used == {images.operator, images.gateway}


def leads(cluster: Cluster) -> bool:
    """Whether the operator that is there holds the Lease."""
    holder = cluster.get("lease", "llmendpoint-operator", "-n", SYSTEM)["spec"].get("holderIdentity") or ""
    return any(pod["metadata"]["name"] in holder for pod in platform(cluster))


def engines(product: Product) -> dict[str, int]:
    """Restarts by uid of every engine pod."""
    return {
        pod["metadata"]["uid"]: sum(
            container["restartCount"]
            for container in (
                *pod["status"].get("initContainerStatuses", []),
                *pod["status"]["containerStatuses"],
            )
        )
        for name in ENDPOINTS
        for pod in product.pods(name)
    }


def proven_runtime(images: Images, root: Path) -> Object:
    """A runtime of the user's own, of the fields that the release in `root` has, whose engines get the sidecar."""
    own = yaml.safe_load((root / "charts/llmendpoint/runtimes/simulator.yaml").read_text())
    probes = {"startup": {"path": "/health"}, "live": {"path": "/health"}}
    spec = {**own["spec"], "image": images.simulator, "readiness": "Generation", "probes": probes}
    return {**own, "metadata": {"name": "proven"}, "spec": spec}


def install_before(cluster: Cluster, root: Path, folder: Path) -> Product:
    """The earlier release with both endpoints Ready."""
    images = load_images(cluster, root)
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    chart.install(cluster, values(images), folder, root / "charts" / "llmendpoint")
    cluster.apply(proven_runtime(images, root))
    [port] = cluster.get("service", "llmendpoint-gateway", "-n", SYSTEM)["spec"]["ports"]
    product = Product(cluster, f"http://{cluster.own.address}:{port['nodePort']}")
    for name, spec in ENDPOINTS.items():
        product.apply(name, spec)
    wait_for("the earlier release runs", lambda: runs(cluster, images), START_LIMIT_S, every_s=0.5)
    for name in ENDPOINTS:
        product.wait_settled(name)
    return product


def test_an_upgrade_restarts_no_engine_and_loses_no_request(
    own_node: Cluster, release_before: Path, tmp_path: Path
) -> None:
    product = install_before(own_node, release_before, tmp_path / "helm")
    images = load_images(own_node, ROOT)
    assert not runs(own_node, images), "both releases have the same images"
    before = engines(product)
    with ExitStack() as stack:
        flows = [
            stack.enter_context(flowing(product, f"{NAMESPACE}/{name}", PER_SECOND)) for name in ENDPOINTS
        ]
        crds = str(chart.CHART / "crds")
        own_node.kubectl("apply", "--server-side", "--force-conflicts", "-f", crds)
        chart.install(own_node, values(images), tmp_path / "helm")
        wait_for("this release runs", lambda: runs(own_node, images), START_LIMIT_S, every_s=0.5)
        wait_for("its operator leads", lambda: leads(own_node), 60, every_s=0.5)
        for (
            name
        ) in ENDPOINTS:  # by the new operator: it knows the endpoint, and leaves the pods that there are
            own_node.kubectl("scale", "llmendpoint", name, "-n", NAMESPACE, "--replicas=3")
            product.wait_settled(name)
        for flow in flows:
            flow.wait_for_more(3 * PER_SECOND)
    after = engines(product)
    assert {uid: after.get(uid) for uid in before} == before, "an engine pod was restarted or replaced"
    assert len(after) == len(before) + len(ENDPOINTS)
    for flow in flows:
        assert flow.failures == [], f"{len(flow.failures)} of {len(flow.done)} failed"
