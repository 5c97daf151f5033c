"""docs/contribute/contracts.md: an engine's end is told to each of its requests, and is a broken connection to the gateway."""

import asyncio

import httpx
import pytest

from gateway.tests.bounds import wait_for
from gateway.tests.engine_process import Simulator
from gateway.tests.harness import Gateway

CHAT = "/v1/chat/completions"


def simulators(gateway: Gateway, endpoint: str, count: int, *options: str) -> list[Simulator]:
    found = [Simulator(f"team/{endpoint}", options=options) for _ in range(count)]
    gateway.backends += found
    for one in found:
        one.start()
    gateway.endpoint(*found, name=endpoint)
    return found


def ask(gateway: Gateway, endpoint: str, content: str) -> httpx.Response:
    body = {"model": f"team/{endpoint}", "messages": [{"role": "user", "content": content}]}
    return httpx.post(gateway.url + CHAT, json=body, timeout=30)


async def test_a_request_that_crashes_the_engine_of_two_replicas_is_refused(gateway: Gateway) -> None:
    engines = simulators(gateway, "crashing", 3, "--crash-after", "0")
    refused = gateway.log("picker").count("request refused")
    first = await asyncio.to_thread(ask, gateway, "crashing", "bad")
    assert first.json()["error"]["code"] == "engine_failed"
    await asyncio.to_thread(
        wait_for, lambda: gateway.log("picker").count("request refused") > refused, "both crashes are known"
    )
    answer = await asyncio.to_thread(ask, gateway, "crashing", "bad")
    assert answer.json()["error"]["code"] == "request_refused"
    await asyncio.to_thread(
        wait_for, lambda: sum(engine.alive for engine in engines) == 1, "the third is left alone"
    )


async def test_a_request_beside_the_one_that_crashes_is_answered_by_another_replica(gateway: Gateway) -> None:
    first, second = simulators(gateway, "beside", 2, "--crash-after", "1", "--ttft", "1")
    usual = asyncio.create_task(asyncio.to_thread(ask, gateway, "beside", "usual"))
    await asyncio.to_thread(wait_for, lambda: gateway.in_flight("beside"), "it is under way")
    (busy,) = gateway.in_flight("beside")
    victim = first if busy == first.address else second
    body = {"model": "team/beside", "messages": [{"role": "user", "content": "bad"}]}
    direct = await asyncio.to_thread(httpx.post, f"http://{victim.address}{CHAT}", json=body, timeout=30)
    assert direct.status_code == 500
    assert (await usual).json()["choices"][0]["message"]["content"] == "You said: usual"


async def test_a_stream_whose_engine_crashes_says_why_and_makes_its_request_a_suspect(
    gateway: Gateway,
) -> None:
    (engine,) = simulators(
        gateway, "streaming", 1, "--crash-after", "1", "--itl", "0.05", "--output-tokens", "1000"
    )
    before = gateway.metric("suspects")
    body = {"model": "team/streaming", "messages": [{"role": "user", "content": "usual"}], "stream": True}
    received: list[bytes] = []

    async def crash_it_and_read_on() -> None:
        async with (
            httpx.AsyncClient(timeout=30) as client,
            client.stream("POST", gateway.url + CHAT, json=body) as answer,
        ):
            # To the very end: a client that hangs up before it leaves nothing to see.
            async for part in answer.aiter_raw():
                received.append(part)
                if len(received) == 1:
                    await client.post(f"http://{engine.address}{CHAT}", json=body)

    with pytest.raises(httpx.RemoteProtocolError):
        await crash_it_and_read_on()
    assert b"simulator was told to crash" in received[-1]
    await asyncio.to_thread(wait_for, lambda: gateway.metric("suspects") == before + 1, "it is a suspect")
