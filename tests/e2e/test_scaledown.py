"""docs/concepts/autoscaling.md: a scale-down removes the replica that has nothing to do, and cuts no stream."""

from concurrent.futures import ThreadPoolExecutor

from tests.cluster import wait_for
from tests.e2e.product import NAMESPACE, Object, Product, is_ready, names

TOKENS = 200
"""At 0.1 s each: long enough that all streams outlast the scale-down's beginning."""

SPEC: Object = {
    "model": {"source": "embedded://simulated"},
    "runtime": {"name": "simulator", "args": ["--ttft=0.05", "--itl=0.1", f"--output-tokens={TOKENS}"]},
    "replicas": 4,
    "rollout": {"observe": {"duration": 0}},
    "terminationGracePeriodSeconds": 60,
}


def stream(product: Product, model: str) -> int:
    """Words of one streamed answer that ended as it should."""
    with product.openai().chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Who are you?"}], max_tokens=TOKENS, stream=True
    ) as chunks:
        found = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert found[-1].finish_reason in ("stop", "length"), "the stream was cut"
    return sum(bool(choice.delta.content) for choice in found)


def in_flight(product: Product, endpoint: str) -> dict[str, int]:
    replicas = product.gateway_state()["endpoints"][f"{NAMESPACE}/{endpoint}"]["replicas"]
    return {replica["pod"]: replica["in_flight"] for replica in replicas}


def test_of_four_replicas_the_idle_one_goes_and_no_stream_is_cut(product: Product) -> None:
    with product.temporary("shrink", SPEC) as name, ThreadPoolExecutor(3) as clients:
        product.wait_settled(name)
        streams = [clients.submit(stream, product, f"{NAMESPACE}/{name}") for _ in range(3)]

        def one_idle() -> str | None:
            load = in_flight(product, name)
            return min(load, key=load.__getitem__) if sorted(load.values()) == [0, 1, 1, 1] else None

        idle = wait_for("three replicas to stream and one to be idle", one_idle, 15)
        product.cluster.kubectl("scale", f"llmendpoint/{name}", "--replicas=3", "-n", NAMESPACE)
        wait_for("one pod to end", lambda: _serving(product, name) == 3, 30)
        assert not any(future.done() for future in streams), "the streams should outlast the choice"
        assert idle not in names([pod for pod in product.pods(name) if is_ready(pod)])
        lengths = [future.result(90) for future in streams]
        assert min(lengths) > TOKENS / 2
        product.wait_settled(name)
        [chosen] = [e["message"] for e in product.events(name) if e["reason"] == "ReplicaChosen"]
        assert (
            chosen
            == f"replica {idle} is removed, with 0 requests in flight; the least busy of the others has 1"
        )


def _serving(product: Product, name: str) -> int:
    return sum(is_ready(pod) for pod in product.pods(name))
