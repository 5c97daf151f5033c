"""docs/concepts/gateway.md: replicas and endpoints that only fail are left alone and tried again, and nobody else suffers.

Each is tried with the real Envoy.
"""

import asyncio
import statistics
import time
from collections import Counter
from typing import Any

import httpx
import openai
import pytest

from gateway.tests.bounds import wait_for
from gateway.tests.demand_lines import stream
from gateway.tests.engine_process import Backend
from gateway.tests.harness import Gateway
from llmendpoint_gateway.core.outcome.poison import SAME_SECONDS

CHAT = "/v1/chat/completions"


async def post(gateway: Gateway, name: str, **body: Any) -> httpx.Response:
    async with httpx.AsyncClient(timeout=30) as client:
        return await client.post(gateway.url + CHAT, json={"model": f"team/{name}", **body})


def code(response: httpx.Response) -> str:
    return response.headers.get("x-engine") or response.json()["error"]["code"]


def breaker(gateway: Gateway, name: str) -> str:
    state: str = gateway.known(name)["breaker"]
    return state


def standings(gateway: Gateway, name: str) -> dict[str, str]:
    return {r["address"]: r["breaker"] for r in gateway.known(name)["replicas"]}


async def until(condition: Any, what: str) -> None:
    await asyncio.to_thread(wait_for, condition, what)


def circuit(**settings: float) -> dict[str, Any]:
    return {"circuitBreaker": settings}


async def test_a_backend_that_never_answers_is_out_of_the_pick_before_its_third_timeout(
    gateway: Gateway,
) -> None:
    good, hung = gateway.backend("good"), gateway.backend("hung", "hang")
    name = gateway.endpoint(good, hung, traffic={"firstByteTimeoutSeconds": 1})
    answers = Counter([code(await post(gateway, name, n=n, stream=True)) for n in range(20)])
    assert answers == {"good": 20}
    assert hung.stats()["requests"] == 2
    assert standings(gateway, name) == {good.address: "closed", hung.address: "open"}
    assert gateway.metric('ejections_total{cause="timed out"}') >= 1


async def test_an_answer_that_is_no_stream_may_take_longer_than_a_first_byte_and_runs_once(
    gateway: Gateway,
) -> None:
    backend = gateway.backend("slow")
    name = gateway.endpoint(backend, traffic={"firstByteTimeoutSeconds": 0.3})
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        for _ in range(3):
            response = await client.post(CHAT, json={"model": f"team/{name}"}, headers={"x-delay": "0.8"})
            assert code(response) == "slow"
    assert backend.stats()["requests"] == 3
    assert standings(gateway, name) == {backend.address: "closed"}


async def test_what_one_caller_makes_fail_is_no_others_loss(gateway: Gateway) -> None:
    """Deterministic 500s of one caller ejected every replica and opened the endpoint's breaker for all."""
    backends = [gateway.backend(f"v{n}", "fails-marked") for n in range(2)]
    name = gateway.endpoint(*backends, **circuit(minRequests=5))
    body = {"model": f"team/{name}"}
    transport = httpx.AsyncHTTPTransport(local_address="127.0.0.9")
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30, transport=transport) as other:
        answers = [code(await other.post(CHAT, json=body))]
        for n in range(60):
            assert (await post(gateway, name, n=n, prompt="always fails")).status_code == 500
            if n % 12 == 0:
                answers.append(code(await other.post(CHAT, json=body)))
    assert set(answers) <= {backend.name for backend in backends}
    assert set(standings(gateway, name).values()) == {"closed"}
    assert breaker(gateway, name) == "closed"


async def test_a_stream_may_take_longer_than_its_first_byte(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"), traffic={"firstByteTimeoutSeconds": 1})
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        headers = {"x-tokens": "10", "x-interval": "0.15"}
        response = await client.post(CHAT, json={"model": f"team/{name}", "stream": True}, headers=headers)
    assert response.text.rstrip().endswith("[DONE]")


async def test_an_answer_that_does_not_begin_in_time_anywhere_is_504_in_openais_shape(
    gateway: Gateway,
) -> None:
    backends = [gateway.backend(f"h{n}", "hang") for n in range(2)]
    name = gateway.endpoint(*backends, traffic={"firstByteTimeoutSeconds": 0.3})
    response = await post(gateway, name, stream=True)
    assert (response.status_code, code(response)) == (504, "replica_timeout")
    assert response.headers["retry-after"] == "1"
    assert [backend.stats()["requests"] for backend in backends] == [1, 1]


async def test_with_every_replica_gone_the_breaker_opens_answers_at_once_and_closes_by_itself(
    gateway: Gateway,
) -> None:
    backends = [gateway.backend(f"b{n}") for n in range(2)]
    name = gateway.endpoint(*backends, **circuit(openSeconds=1))
    for backend in backends:
        backend.kill()
    with stream(gateway) as lines:
        answers: list[str] = []
        while "circuit_open" not in answers and len(answers) < 20:
            answers.append(code(await post(gateway, name)))
        assert set(answers[:-1]) == {"replica_failed"}
        refused = await post(gateway, name)
        assert (refused.status_code, code(refused)) == (503, "circuit_open")
        assert int(refused.headers["retry-after"]) >= 1
        assert breaker(gateway, name) != "closed"
        lines.until(name, lambda e: e["breaker"]["state"] != "closed", "the operator is told")
        assert gateway.metric(f'circuit_open{{llmendpoint="{name}",namespace="team"}}') == 1
        backends[0].start()
        await until(lambda: httpx_code(gateway, name) == backends[0].name, "a trial finds it")
        await until(lambda: breaker(gateway, name) == "closed", "it is closed")
        lines.until(name, lambda e: e["breaker"]["state"] == "closed", "the operator is told")
    answers = [code(await post(gateway, name)) for _ in range(10)]
    assert set(answers) == {"b0"}


def httpx_code(gateway: Gateway, name: str) -> str:
    return code(httpx.post(gateway.url + CHAT, json={"model": f"team/{name}"}, timeout=30))


async def test_a_new_pod_closes_the_breaker_without_a_request(gateway: Gateway) -> None:
    dead, fresh = gateway.backend("dead"), gateway.backend("fresh")
    name = gateway.endpoint(dead, **circuit(openSeconds=300))
    dead.kill()
    while code(await post(gateway, name)) != "circuit_open":
        pass
    gateway.remove_replica(name, "r1", dead)
    gateway.replica(name, "r1", fresh)
    await until(lambda: breaker(gateway, name) == "closed", "it is closed")
    assert code(await post(gateway, name)) == "fresh"


async def test_at_an_error_rate_the_breaker_opens_though_no_replica_is_ejected(gateway: Gateway) -> None:
    backends = [gateway.backend(f"f{n}", "flaky") for n in range(2)]
    name = gateway.endpoint(*backends, **circuit(openSeconds=1, minRequests=12, errorRate=0.4))
    answers = []
    while "circuit_open" not in answers and len(answers) < 60:
        response = await post(gateway, name, n=len(answers))
        answers.append(code(response) if response.status_code != 500 else "500")
    assert 12 <= len(answers) < 60
    assert set(standings(gateway, name).values()) == {"closed"}
    assert gateway.metric('circuit_openings_total{cause="errors"}') >= 1


async def test_an_endpoint_whose_breaker_is_open_slows_nobody(gateway: Gateway) -> None:
    dead, well = gateway.backend("dead"), gateway.backend("well")
    broken = gateway.endpoint(dead, **circuit(openSeconds=300))
    name = gateway.endpoint(well)

    async def measure() -> list[float]:
        taken = []
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            for _ in range(300):
                begun = time.perf_counter()
                response = await client.post(CHAT, json={"model": f"team/{name}"})
                taken.append((time.perf_counter() - begun) * 1e3)
                assert response.headers["x-engine"] == "well"
        return sorted(taken)

    before = await measure()
    dead.kill()
    while code(await post(gateway, broken)) != "circuit_open":
        pass
    refusals: list[float] = []
    going = True

    async def ask_the_broken() -> None:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
            while going:
                begun = time.perf_counter()
                assert code(await client.post(CHAT, json={"model": f"team/{broken}"})) in (
                    "circuit_open",
                    "replica_failed",
                )
                refusals.append((time.perf_counter() - begun) * 1e3)
                await asyncio.sleep(0.01)

    asking = asyncio.create_task(ask_the_broken())
    during = await measure()
    going = False
    await asking
    print(
        f"p99 of the healthy endpoint {before[296]:.2f} ms alone, {during[296]:.2f} ms beside an open breaker; "
        f"{len(refusals)} refusals, p50 {statistics.median(refusals):.2f} ms"
    )


@pytest.mark.parametrize("replicas", [2, 4])
async def test_a_poisoned_request_takes_two_replicas_at_most_however_often_it_comes(
    gateway: Gateway, replicas: int
) -> None:
    backends = [gateway.backend(f"p{replicas}{n}") for n in range(replicas)]
    name = gateway.endpoint(*backends)
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none")
    messages: Any = [{"role": "user", "content": "poison"}]
    for _ in range(3):
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model=f"team/{name}", messages=messages)
    assert sum(not backend.alive for backend in backends) == 2
    response = await post(gateway, name, messages=messages)
    if replicas > 2:
        # The first may still be placed on both dead replicas: a broken connection alone ejects nobody.
        await until(lambda: code_of(gateway, name, "harmless") != "replica_failed", "others are answered")
        assert (await post(gateway, name, prompt="harmless")).status_code == 200
    assert response.status_code == 503


async def test_a_refused_request_is_told_so_and_its_client_not_to_try_again(gateway: Gateway) -> None:
    backends = [gateway.backend(f"q{n}") for n in range(3)]
    name = gateway.endpoint(*backends)
    await post(gateway, name, prompt="poison")
    await until(lambda: code_of(gateway, name, "poison") == "request_refused", "it is refused")
    response = await post(gateway, name, prompt="poison")
    assert response.headers["x-should-retry"] == "false"
    assert "retry-after" not in response.headers
    assert alive(backends) == 1


def code_of(gateway: Gateway, name: str, prompt: str) -> str:
    body = {"model": f"team/{name}", "prompt": prompt}
    return code(httpx.post(gateway.url + CHAT, json=body, timeout=30))


def alive(backends: list[Backend]) -> int:
    return sum(backend.alive for backend in backends)


async def test_a_request_that_was_only_near_a_crash_is_cleared_by_its_next_answer(gateway: Gateway) -> None:
    one, other = gateway.backend("one"), gateway.backend("other")
    name = gateway.endpoint(one, other)
    headers = {"x-tokens": "1000", "x-interval": "0.05"}
    body = {"model": f"team/{name}", "prompt": "usual"}
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=30) as client,
        client.stream("POST", CHAT, json=body, headers=headers),
    ):
        (busy,) = gateway.in_flight(name)
        victim = one if busy == one.address else other
        before = gateway.metric("suspects")
        victim.kill()
        await until(lambda: gateway.metric("suspects") == before + 1, "it is a suspect")
    assert code_of(gateway, name, "usual") in ("one", "other")
    await until(lambda: gateway.metric("suspects") == before, "it is cleared")


async def test_a_request_that_kills_in_the_middle_of_its_stream_is_refused_after_the_second(
    gateway: Gateway,
) -> None:
    backends = [gateway.backend(f"d{n}") for n in range(3)]
    name = gateway.endpoint(*backends)
    headers = {"x-tokens": "1000", "x-interval": "0.05"}
    body = {"model": f"team/{name}", "prompt": "long"}
    refused = gateway.log("picker").count("request refused")
    for _ in range(2):
        async with (
            httpx.AsyncClient(base_url=gateway.url, timeout=30) as client,
            client.stream("POST", CHAT, json=body, headers=headers),
        ):
            await asyncio.sleep(SAME_SECONDS + 0.5)  # Envoy tells of the stream every second
            (busy,) = gateway.in_flight(name)
            next(backend for backend in backends if backend.address == busy).kill()
            await until(lambda: not gateway.in_flight(name), "the stream is broken")
    await until(lambda: gateway.log("picker").count("request refused") > refused, "both crashes are known")
    assert code_of(gateway, name, "long") == "request_refused"
    assert alive(backends) == 1
