"""docs/concepts/batches.md: a batch runs through the gateway on real pods, and goes on after its pod was killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster import wait_for
from tests.demo.product import NAMESPACE as SYSTEM
from tests.e2e.product import Product, is_ready

LINES = 40


def line(number: int) -> str:
    body = {"model": "e2e/chat", "prompt": f"What is {number}?", "max_tokens": 24, "temperature": 0}
    given = {"custom_id": f"n-{number}", "method": "POST", "url": "/v1/completions", "body": body}
    return json.dumps(given) + "\n"


def batch_pod(product: Product) -> str | None:
    """The pod that serves, if there is one."""
    found = product.cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=batch")["items"]
    ready = [pod for pod in found if is_ready(pod) and not pod["metadata"].get("deletionTimestamp")]
    assert len(ready) <= 1, found
    return str(ready[0]["metadata"]["name"]) if ready else None


def kubectl_llm(product: Product, *arguments: str) -> str:
    command = [sys.executable, "-m", "llmendpoint_cli", "batch", *arguments]
    environment = product.cluster.environment
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_batch_goes_on_after_its_pod_was_killed(product: Product, chat: str, tmp_path: Path) -> None:
    first = wait_for("the batch service is ready", lambda: batch_pod(product), 60)
    path = tmp_path / "in.jsonl"
    path.write_text("".join(line(number) for number in range(LINES)))
    made = json.loads(kubectl_llm(product, "submit", str(path), "-o", "json"))
    client = product.openai(max_retries=2)

    def some_answers() -> bool:
        counts = client.batches.retrieve(made["id"]).request_counts
        return counts is not None and counts.completed > 2

    wait_for("some lines are answered", some_answers, 60, every_s=0.1)
    product.cluster.kubectl("delete", "pod", first, "-n", SYSTEM, "--grace-period=0", "--force")
    began = time.monotonic()
    assert client.batches.retrieve(made["id"]).id == made["id"], "the gateway waits for the next pod"
    print(f"the batch service answered {time.monotonic() - began:.1f} s after its pod was killed")
    # The killed one may have answered: a container ends a moment after its pod is deleted.
    wait_for("another pod serves", lambda: batch_pod(product) not in (None, first), 60)
    assert "completed" in kubectl_llm(product, "status", made["id"], "--wait", "--timeout", "120")
    rows = [json.loads(row) for row in kubectl_llm(product, "results", made["id"]).splitlines()]
    assert [row["custom_id"] for row in rows] == [f"n-{number}" for number in range(LINES)]
    assert all(row["response"]["body"]["choices"][0]["text"] for row in rows)
