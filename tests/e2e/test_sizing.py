"""docs/concepts/sizing.md: a Job reads a model on a real volume before any engine does; `top` shows what the gateways know."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import progress, wait_for
from tests.cluster.images import ROOT, local_volume
from tests.e2e.product import NAMESPACE, Object, Product

DEMO = ROOT / "server/src/llmendpoint_server/weights/embedded/demo"
CLAIM = "demo-model"


@pytest.fixture
def claim(product: Product) -> Iterator[str]:
    """A claim with the demo model in the folder `chat`, readable by everybody as a volume of models is."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    shutil.copytree(DEMO, folder / "chat")
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755)
    volume, wanted = local_volume(CLAIM, folder, namespace=NAMESPACE)
    product.cluster.apply(volume, wanted)
    yield CLAIM
    product.cluster.kubectl("delete", "persistentvolumeclaim", CLAIM, "-n", NAMESPACE, timeout=60)
    product.cluster.kubectl("delete", "persistentvolume", volume["metadata"]["name"], timeout=60)
    shutil.rmtree(folder)


def llm(product: Product, *arguments: str) -> str:
    return progress.run(
        [sys.executable, "-m", "llmendpoint_cli", *arguments], env=product.cluster.environment
    )


def test_a_job_reads_a_model_on_a_claim_before_any_engine_does(product: Product, claim: str) -> None:
    spec: Object = {
        "model": {"source": f"pvc://{claim}/chat"},
        "replicas": 0,
        "resources": {"accelerator": {"kind": "nvidia.com/gpu", "product": "l4"}},
    }
    with product.temporary("sized", spec) as name:
        wait_for("the verdict", lambda: product.condition(name, "CapacityFits")["reason"] == "Fits", 60)
        model = product.status(name)["capacity"]["model"]
        assert model["architecture"] == "LlamaForCausalLM"
        assert 1_000_000 < model["weights"]["BF16"] < 12_000_000
        assert product.children(name, "deployments")
        wait_for("the Job to be gone", lambda: product.children(name, "jobs,pods") == [], 60)


def test_top_shows_what_the_gateways_know(product: Product, chat: str) -> None:
    product.openai().chat.completions.create(
        model=f"{NAMESPACE}/{chat}", messages=[{"role": "user", "content": "What is this?"}], max_tokens=4
    )
    [found] = json.loads(llm(product, "top", chat, "-n", NAMESPACE, "-o", "json"))
    assert (found["endpoint"], found["waiting"], found["breaker"]) == (f"{NAMESPACE}/{chat}", 0, "closed")
    assert len(found["replicas"]) == found["wanted"]
