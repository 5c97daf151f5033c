"""docs/contribute/contracts.md: an engine that knows nothing of us is ready when the sidecar says so, again after every start."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from tests.cluster import wait_for
from tests.e2e.machine_pods import processes_of
from tests.e2e.product import NAMESPACE, Product, is_ready

ROOT = Path(__file__).parents[2]
NAME = "foreign"
LOAD_SECONDS = 4


@pytest.fixture
def foreign(product: Product) -> Iterator[str]:
    """The simulator without /ready, whose /health is 200 four seconds before its first answer."""
    runtime = product.cluster.get("llmruntime", "simulator")
    own = yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/simulator.yaml").read_text())
    product.cluster.apply(
        {
            **own,
            "metadata": {"name": NAME},
            "spec": {
                **own["spec"],
                "image": runtime["spec"]["image"],
                "readiness": "Generation",
                "args": [{"value": "--foreign"}, *own["spec"]["args"]],
                "probes": {"startup": {"path": "/health"}, "live": {"path": "/health"}},
            },
        }
    )
    spec = {
        "model": {"source": "embedded://none"},
        "runtime": {"name": NAME, "args": [f"--load-time={LOAD_SECONDS}", "--ttft=0.01", "--itl=0.001"]},
        "terminationGracePeriodSeconds": 15,
    }
    with product.temporary(NAME, spec) as name:
        product.wait_settled(name)
        yield name
    product.cluster.kubectl("delete", "llmruntime", NAME)


def test_a_killed_engine_gets_no_request_before_it_has_generated_again(
    product: Product, foreign: str
) -> None:
    """Callers send completions, the sidecar chats: the log of the new run tells them apart."""
    [pod] = product.pods(foreign)
    assert [c["name"] for c in pod["spec"]["initContainers"]] == ["probe"]
    with completions(product, foreign) as codes:
        wait_for("requests are answered", lambda: codes.count(200) >= 20, 30)
        [engine] = processes_of(pod, b"llmendpoint-simulator")
        os.kill(engine, signal.SIGKILL)
        wait_for("it is started again", lambda: restarts(product, foreign) == 1, 60)
        wait_for("it is ready again", lambda: is_ready(product.pods(foreign)[0]), 90)
        before = codes.count(200)
        wait_for("requests are answered again", lambda: codes.count(200) >= before + 20, 30)
    log = product.cluster.kubectl("logs", pod["metadata"]["name"], "-c", "engine", "-n", NAMESPACE)
    requests = [line for line in map(json.loads, log.splitlines()) if line.get("method") == "POST"]
    proof = next(
        n for n, r in enumerate(requests) if r["path"] == "/v1/chat/completions" and r["status"] == 200
    )
    assert all(r["path"] == "/v1/chat/completions" for r in requests[:proof]), requests[: proof + 1]
    assert any(r["path"] == "/v1/completions" for r in requests[proof:])
    assert {r["status"] for r in requests[proof:]} == {200}


@contextmanager
def completions(product: Product, name: str) -> Iterator[list[int]]:
    """Requests to the endpoint, one after the other, while the block runs; gives the answers' statuses so far."""
    codes: list[int] = []
    stop = threading.Event()
    body = {"model": f"{NAMESPACE}/{name}", "prompt": "Hello", "max_tokens": 2}

    def send() -> None:
        while not stop.wait(0.02):
            codes.append(product.post(body, "/v1/completions").status_code)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield codes
    finally:
        stop.set()
        thread.join(120)


def restarts(product: Product, name: str) -> int:
    [pod] = product.pods(name)
    return int(pod["status"]["containerStatuses"][0]["restartCount"])
