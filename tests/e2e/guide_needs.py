"""What a guide takes for granted and a test has to make: a hub, a bucket, a volume. By page; the others need nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from llmendpoint_server.weights.sigv4 import Keys
from tests.cluster.images import ROOT, local_volume
from tests.e2e.product import Product
from tests.hub_stub import Hub
from tests.ports import free_port
from tests.s3_stub import BUCKET, ObjectStore

Values = dict[str, str]
Need = Callable[[Product, str, Path], AbstractContextManager[Values]]
"""Of the product, the page's namespace and its folder: the page's environment variables, and values of the table."""

DEMO = ROOT / "server/src/llmendpoint_server/weights/embedded/demo"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
KEYS = Keys("AK", "secret")


def of(page: str) -> Need:
    return NEEDS.get(page, nothing)


@contextmanager
def nothing(product: Product, namespace: str, folder: Path) -> Iterator[Values]:
    yield {}


@contextmanager
def a_free_port(product: Product, namespace: str, folder: Path) -> Iterator[Values]:
    yield {"port": str(free_port())}


@contextmanager
def volume(product: Product, namespace: str, folder: Path) -> Iterator[None]:
    """Where the claim `models` of the page finds its volume, as a storage class would make it."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    found, _ = local_volume("models", folder, namespace=namespace)
    found["spec"] |= {"accessModes": ["ReadWriteMany"], "capacity": {"storage": "100Gi"}}
    product.cluster.apply(found)
    try:
        yield
    finally:
        product.cluster.kubectl("delete", "persistentvolume", found["metadata"]["name"], "--wait=false")


@contextmanager
def a_hub(product: Product, namespace: str, folder: Path) -> Iterator[Values]:
    files = folder / "hub"
    files.mkdir()
    (files / "config.json").write_text("{}")
    (files / "model.safetensors").write_bytes(bytes(2**20))
    address = product.cluster.own.address
    hub = Hub({COMMIT: files}, COMMIT, token="a-token", model="Qwen/Qwen3-8B", address=address)
    try:
        with volume(product, namespace, folder / "volume"):
            yield {"HF_TOKEN": hub.token, "HF_ENDPOINT": hub.url}
    finally:
        hub.close()


@contextmanager
def a_bucket(product: Product, namespace: str, folder: Path) -> Iterator[Values]:
    objects = {"qwen3-8b/config.json": b"{}", "qwen3-8b/model.safetensors": bytes(2**20)}
    store = ObjectStore(objects, keys=KEYS, address=product.cluster.own.address)
    try:
        with volume(product, namespace, folder / "volume"):
            yield {
                "BUCKET": BUCKET,
                "AWS_ENDPOINT_URL": store.url,
                "AWS_REGION": store.region,
                "AWS_ACCESS_KEY_ID": KEYS.access,
                "AWS_SECRET_ACCESS_KEY": KEYS.secret,
            }
    finally:
        store.close()


@contextmanager
def a_model_on_a_claim(product: Product, namespace: str, folder: Path) -> Iterator[Values]:
    files = folder / "volume"
    shutil.copytree(DEMO, files / "qwen3-8b")
    for path in (folder, *files.rglob("*")):
        path.chmod(0o755)
    found, claim = local_volume("models", files, namespace=namespace)
    product.cluster.apply(found, claim)
    try:
        yield {}
    finally:
        product.cluster.kubectl("delete", "persistentvolumeclaim", "models", "-n", namespace, "--wait=false")
        product.cluster.kubectl("delete", "persistentvolume", found["metadata"]["name"], "--wait=false")


NEEDS: dict[str, Need] = {
    "cache": a_hub,
    "call-it": a_free_port,
    "s3": a_bucket,
    "size": a_model_on_a_claim,
}
