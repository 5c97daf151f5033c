"""docs/concepts/autoscaling.md: to zero while nobody calls, and back for 50 requests at once, which wait until replicas have loaded."""

import time
from concurrent.futures import ThreadPoolExecutor

from tests.cluster import wait_for
from tests.e2e.product import NAMESPACE, Object, Product

LOAD_S = 2.0
SPEC: Object = {
    "model": {"source": "embedded://simulated"},
    "runtime": {
        "name": "simulator",
        "args": [f"--load-time={LOAD_S}", "--ttft=0.05", "--itl=0.01", "--output-tokens=8"],
    },
    "engine": {"maxNumSeqs": 16},
    "rollout": {"observe": {"duration": 0}, "scaleDownDelay": 0},
    "terminationGracePeriodSeconds": 15,
    "autoscaling": {
        "minReplicas": 0,
        "maxReplicas": 2,
        "pollingInterval": 1,
        "cooldownPeriod": 3,
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 3}},
    },
}


def ask(product: Product, model: str) -> float:
    """Seconds to the first token of an answer that ended as it should."""
    began, first = time.monotonic(), 0.0
    messages = [{"role": "user", "content": "Who are you?"}]
    reason = None
    with product.openai().chat.completions.create(
        model=model, messages=messages, max_tokens=8, stream=True
    ) as chunks:
        for chunk in chunks:
            first = first or time.monotonic() - began
            reason = (chunk.choices and chunk.choices[0].finish_reason) or reason
    assert reason in ("stop", "length")
    return first


def test_fifty_requests_for_an_endpoint_at_zero_wait_for_their_replicas_and_none_is_lost(
    product: Product,
) -> None:
    def at_zero() -> bool:
        ready = product.condition("sleeper", "Ready")
        return (ready["status"], ready["reason"]) == ("True", "ScaledToZero") and not product.pods("sleeper")

    with product.temporary("sleeper", SPEC) as name, ThreadPoolExecutor(50) as clients:
        wait_for("the endpoint to go to zero", at_zero, 90)
        asked = [clients.submit(ask, product, f"{NAMESPACE}/{name}") for _ in range(50)]
        waited = sorted(future.result(90) for future in asked)
        print(f"first tokens after {waited[0]:.2f} to {waited[-1]:.2f} s, of which {LOAD_S} s are the load")
        events = [event["message"] for event in product.events(name) if event["reason"] == "ScaledUp"]
        assert any("0 -> " in said and "(Activated)" in said for said in events), events
        wait_for("the endpoint to be at zero again", at_zero, 60)
