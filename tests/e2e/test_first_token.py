"""docs/concepts/autoscaling.md: a request that the gateway held gets its first token soon after the model is loaded.

Part of `make bench-wake`. Three instants of one machine's clock: the engine's log lines for loaded (before its warm-up
generation) and ready (after it), and the moment at which the waiting client read the first token. Nothing asserts times; the
figures are for docs/benchmarks.md.
"""

import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import pytest

from tests.bench.results import Result, save
from tests.cluster import wait_for
from tests.e2e.product import NAMESPACE, START_LIMIT_S, Object, Product

pytestmark = pytest.mark.extended
AT_ZERO: Object = {
    "rollout": {"observe": {"duration": 0}, "scaleDownDelay": 0},
    "terminationGracePeriodSeconds": 15,
    "autoscaling": {
        "minReplicas": 0,
        "maxReplicas": 1,
        "pollingInterval": 1,
        "cooldownPeriod": 1,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 1}},
    },
}
SIMULATED: Object = {
    "model": {"source": "embedded://simulated"},
    "runtime": {"name": "simulator", "args": ["--load-time=2", "--ttft=0.05", "--itl=0.01"]},
    "engine": {"maxNumSeqs": 16},
    **AT_ZERO,
}
DEMO: Object = {
    "model": {"source": "embedded://demo"},
    "resources": {"cpu": "50m", "memory": "3Gi"},
    "engine": {"device": "cpu", "maxNumSeqs": 16, "kvCacheMemory": "128Mi"},
    **AT_ZERO,
}


@dataclass(frozen=True)
class Wake:
    """Seconds from each instant to the first token. The simulator has no warm-up: it is ready when it has loaded."""

    asked: float
    loaded: float
    ready: float


@pytest.fixture(scope="module")
def figures() -> Iterator[list[Result]]:
    found: list[Result] = []
    yield found
    save("first-token", found)


def first_token(product: Product, name: str) -> float:
    """When it came (time.time())."""
    with product.openai().chat.completions.create(
        model=f"{NAMESPACE}/{name}",
        messages=[{"role": "user", "content": "Who are you?"}],
        max_tokens=4,
        stream=True,
    ) as chunks:
        for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                return time.time()
    raise AssertionError("an answer without a token")


def said(product: Product, name: str) -> dict[str, float]:
    """When the engine of the only pod logged what first."""
    [pod] = product.pods(name)
    lines = product.cluster.logs(pod["metadata"]["name"], NAMESPACE, "-c", "engine").splitlines()
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {
        event["event"]: datetime.fromisoformat(event["timestamp"]).timestamp()
        for event in reversed(events)
        if "timestamp" in event
    }


def wake(product: Product, name: str) -> Wake:
    wait_for("the endpoint to be at zero", lambda: not product.pods(name), START_LIMIT_S)
    asked = time.time()
    token = first_token(product, name)
    log = said(product, name)
    ready = log["engine: ready"]
    return Wake(token - asked, token - log.get("engine: warming", ready), token - ready)


@pytest.mark.parametrize(("engine", "spec", "wakes"), [("simulator", SIMULATED, 10), ("demo model", DEMO, 5)])
def test_a_held_request_gets_its_first_token(
    product: Product, figures: list[Result], engine: str, spec: Object, wakes: int
) -> None:
    with product.temporary(f"first-{engine.split()[0]}", spec) as name:
        wait_for("a first replica", lambda: product.status(name).get("readyReplicas"), START_LIMIT_S)
        found = [wake(product, name) for _ in range(wakes)]
    for one in found:
        print(one)
    instants = {"loaded": [one.loaded for one in found]}
    if any(one.loaded != one.ready for one in found):
        instants["ready"] = [one.ready for one in found]
    for instant, seconds in instants.items():
        what = f"held request, {engine}: {instant} to first token"
        figures.append(Result(f"{what}, median of {wakes}", statistics.median(seconds), "s"))
        figures.append(Result(f"{what}, longest", max(seconds), "s", goal="<= 1 s" * (instant == "loaded")))
