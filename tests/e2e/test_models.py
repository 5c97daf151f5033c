"""docs/concepts/models.md: a download whose pod is killed goes on where it was, and engines find the model read-only."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_server.weights.sigv4 import Keys
from tests.cluster import images, wait_for
from tests.e2e.machine_pods import processes_of
from tests.e2e.product import NAMESPACE, Object, Product
from tests.s3_stub import BUCKET, ObjectStore

KEYS = Keys("AK", "secret")
WEIGHTS = "demo/model.safetensors"
CLAIM, SECRET = "model-cache", "store"
READS = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
print(sorted(path.name for path in folder.iterdir()), (folder / "model.safetensors").stat().st_size)
try:
    (folder / "config.json").write_text("no")
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture
def store(product: Product, tmp_path: Path) -> Iterator[ObjectStore]:
    """A bucket on the node's address with credentials in a Secret, and a claim to download to."""
    objects = {"demo/config.json": b"{}", WEIGHTS: bytes(2**20)}
    found = ObjectStore(objects, keys=KEYS, address=product.cluster.instance.address)
    volume, claim = images.local_volume(CLAIM, tmp_path, namespace=NAMESPACE)
    for manifest in (volume, claim):
        manifest["spec"]["accessModes"] = ["ReadWriteMany"]
    values = {
        "AWS_ENDPOINT_URL": found.url, "AWS_REGION": found.region, "AWS_ACCESS_KEY_ID": KEYS.access,
        "AWS_SECRET_ACCESS_KEY": KEYS.secret,
    }  # fmt: skip
    secret = {
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}, "stringData": values,
    }  # fmt: skip
    product.cluster.apply(volume, claim, secret)
    yield found
    found.close()
    product.cluster.kubectl("delete", "jobs", "-n", NAMESPACE, "-l", "llmendpoint.io/model-job")
    product.cluster.kubectl("delete", "pvc", CLAIM, "-n", NAMESPACE, timeout=60)
    product.cluster.kubectl("delete", "pv", volume["metadata"]["name"], timeout=60)
    product.cluster.kubectl("delete", "secret", SECRET, "-n", NAMESPACE)


def test_a_download_whose_pod_is_killed_is_gone_on_with_and_engines_can_only_read_it(
    product: Product, store: ObjectStore
) -> None:
    store.faults.gate = threading.Event()
    with product.temporary("cached", spec(2, cache={"claimName": CLAIM})) as name:
        wait_for("half of it has come", lambda: progress(product, name) >= 40, 90)
        assert product.pods(name) == []
        [downloading] = download_pods(product, "Running")
        os.kill(processes_of(downloading, b"llmendpoint-model")[0], signal.SIGKILL)
        store.faults.gate.set()
        status = product.wait_settled(name)
        assert status["model"]["progress"] == 100
        starts = [first for key, first in store.faults.ranges if key == WEIGHTS]
        assert starts[0] == 0
        assert starts[1] > 0, "the second pod began anew"
        assert len(starts) == 2, "it was downloaded more than once"
        for pod in product.pods(name):
            assert_reads_only(product, pod, "/models/cache/")


def test_without_a_cache_each_pod_downloads_before_its_engine_starts(
    product: Product, store: ObjectStore
) -> None:
    with product.temporary("uncached", spec(1)) as name:
        product.wait_settled(name)
        [pod] = product.pods(name)
        assert_reads_only(product, pod, "/models/fetched/")
        environment = ["exec", pod["metadata"]["name"], "-n", NAMESPACE, "-c", "engine", "--", "env"]
        assert "AWS_" not in product.cluster.kubectl(*environment)


def progress(product: Product, name: str) -> int:
    return int(product.endpoint(name).get("status", {}).get("model", {}).get("progress", 0))


def spec(replicas: int, **model: Any) -> Object:
    source = {"source": f"s3://{BUCKET}/demo", "credentials": {"secretName": SECRET}}
    return {
        "model": {**source, **model},
        "runtime": {"name": "simulator", "args": ["--load-time=0", "--ttft=0.01", "--itl=0.001"]},
        "replicas": replicas,
        "terminationGracePeriodSeconds": 15,
    }


def assert_reads_only(product: Product, pod: Object, root: str) -> None:
    [path] = [arg[8:] for arg in pod["spec"]["containers"][0]["args"] if arg.startswith("--model=")]
    assert path.startswith(root)
    argv = [
        "exec",
        pod["metadata"]["name"],
        "-n",
        NAMESPACE,
        "-c",
        "engine",
        "--",
        "python3",
        "-c",
        READS,
        path,
    ]
    said = product.cluster.kubectl(*argv)
    assert "['.llmendpoint.json', 'config.json', 'model.safetensors'] 1048576" in said
    assert "Read-only file system" in said


def download_pods(product: Product, phase: str) -> list[Object]:
    select = ("-l", "app.kubernetes.io/component=model-download", f"--field-selector=status.phase={phase}")
    found: list[Object] = product.cluster.get("pods", "-n", NAMESPACE, *select)["items"]
    return found
