"""docs/contribute/contracts.md: Envoy retries only what the engine marks or what was not sent, and at no replica that was left out."""

import asyncio
from collections import Counter

import pytest

from gateway.tests.asking import CHAT, ejected, post, stream, until
from gateway.tests.harness import Gateway


@pytest.mark.parametrize("path", [CHAT, "/v1/responses"])
async def test_a_503_is_tried_elsewhere_only_with_the_engines_mark(gateway: Gateway, path: str) -> None:
    good, draining, busy = (
        gateway.backend("good"),
        gateway.backend("draining", "retriable-503"),
        gateway.backend("busy", "503"),
    )
    marked = gateway.endpoint(good, draining)
    answers = [await post(gateway, marked, path) for _ in range(8)]
    assert {answer.headers["x-engine"] for answer in answers} == {"good"}
    assert draining.stats()["requests"] > 0
    plain = gateway.endpoint(good, busy)
    answers = [await post(gateway, plain, path) for _ in range(8)]
    assert Counter(answer.status_code for answer in answers) == {200: 4, 503: 4}
    assert {a.json()["error"]["message"] for a in answers if a.status_code == 503} == {"busy"}


async def test_a_retry_never_goes_to_a_replica_that_the_picker_left_out(gateway: Gateway) -> None:
    """override_host's fallback was any host of the cluster, also one that is ejected or not ready."""
    dying, cold = gateway.backend("dying", "reset"), gateway.backend("cold")
    name = gateway.endpoint(dying)
    gateway.replica(name, "r1", cold, ready=False)
    await until(lambda: len(gateway.known(name)["replicas"]) == 2, "both are known")
    gateway.settled()
    # Kubernetes says that it is not ready and Envoy may not know it yet: for Envoy both are to look well.
    answers = [await post(gateway, name) for _ in range(3)]
    assert {(a.status_code, a.json()["error"]["code"]) for a in answers} == {(503, "replica_failed")}
    assert cold.stats()["requests"] == 0


async def test_a_retry_never_goes_to_an_ejected_replica(gateway: Gateway) -> None:
    good, dead = gateway.backend("good"), gateway.backend("dead")
    name = gateway.endpoint(good, dead)
    dead.kill()
    while not ejected(gateway, name):
        assert (await post(gateway, name)).status_code == 200
    dead.start()  # it would answer now, but nothing has tried it yet
    good.kill()
    good.options = ("reset",)
    good.start()
    response = await post(gateway, name)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "replica_failed")
    assert dead.stats()["requests"] == 0


async def test_a_request_that_moved_to_another_replica_is_counted_there(gateway: Gateway) -> None:
    """A stream that a retry moved was counted at the replica that had failed it: the other looked idle."""
    broken, well = gateway.backend("broken", "reset"), gateway.backend("well")
    name = gateway.endpoint(broken, well)
    streams = [asyncio.create_task(stream(gateway, name, 1000, 0.05)) for _ in range(4)]
    await until(lambda: well.stats()["running"] == 4, "all are with the one that answers")
    await until(lambda: gateway.in_flight(name) == {well.address: 4}, "and are counted there")
    for task in streams:
        task.cancel()
    await until(lambda: gateway.in_flight(name) == {}, "none is counted")
