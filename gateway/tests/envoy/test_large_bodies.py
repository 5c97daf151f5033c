"""docs/concepts/gateway.md: a body of up to 4 MiB is sent to a second replica when the first fails; a larger one is not kept."""

import asyncio
import json

import httpx
import pytest

from gateway.tests.asking import CHAT, LONG, ejected, post, until
from gateway.tests.harness import Gateway
from gateway.tests.uploads import MIB, PROTOCOLS, body_of, upload, whole


async def post_body(gateway: Gateway, body: bytes, path: str = CHAT, **headers: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        return await client.post(path, content=body, headers=headers)


# The largest that is always kept, one more, and what a long prompt takes; the largest that is kept while there is room.
SIZES = (32 * 1024, 32 * 1024 + 1, 200_000, 3 * MIB, 4 * MIB)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_a_body_that_a_draining_replica_refuses_reaches_another_replica(
    gateway: Gateway, protocol: str, size: int
) -> None:
    """Above 64 KiB the caller saw the replica's 503."""
    leaving, good = gateway.backend("leaving", "retriable-503"), gateway.backend("good")
    name = gateway.endpoint(leaving, good)
    for _ in range(4):
        assert b"hello from good" in await upload(gateway, protocol, body_of(name, size))
    assert leaving.stats()["requests"] > 0
    async with httpx.AsyncClient() as client:
        seen = (await client.get(f"http://{good.address}/stub/seen")).json()
    assert {request["length"] for request in seen} == {size}


@pytest.mark.parametrize("size", SIZES)
async def test_a_body_whose_replica_refuses_the_connection_reaches_another_one(
    gateway: Gateway, size: int
) -> None:
    gone, good = gateway.backend("gone"), gateway.backend("good")
    name = gateway.endpoint(gone, good)
    gone.kill()
    for _ in range(4):
        assert (await post_body(gateway, body_of(name, size))).headers["x-engine"] == "good"
    await until(lambda: ejected(gateway, name) == [gone.address], "the other one was tried")


async def test_a_large_completion_whose_replica_breaks_off_is_run_at_another_one(gateway: Gateway) -> None:
    broken, good = gateway.backend("broken", "reset"), gateway.backend("good")
    name = gateway.endpoint(broken, good)
    for _ in range(4):
        assert (await post_body(gateway, body_of(name, 200_000))).headers["x-engine"] == "good"
    assert broken.stats()["requests"] > 0


async def test_a_caller_does_not_choose_whether_his_body_is_kept(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    for size in (100, 5 * MIB):
        answer = await post_body(gateway, body_of(name, size), **{"x-gateway-kept": "1"})
        assert answer.status_code == 200
    async with httpx.AsyncClient() as client:
        seen = (await client.get(f"http://{backend.address}/stub/seen")).json()
    assert [request["headers"].get("x-gateway-kept") for request in seen] == [None, None]


async def test_a_body_too_large_to_be_kept_is_gone_while_its_answer_is_streamed(gateway: Gateway) -> None:
    """Kept for a retry, 5,000 bodies of 200 kB were 1 GB."""
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)

    def allocated() -> int:
        return int(json.loads(gateway.admin("/memory"))["allocated"])

    async def ask() -> None:
        pace = {"x-tokens": str(LONG), "x-interval": "0.1"}
        async with (
            httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
            client.stream("POST", CHAT, content=body_of(name, 5 * MIB), headers=pace) as response,
        ):
            async for _ in response.aiter_raw():
                pass

    before = allocated()
    asking = [asyncio.create_task(ask()) for _ in range(8)]
    await until(lambda: sum(gateway.in_flight(name).values()) == 8, "all are being answered")
    await until(lambda: allocated() - before < 10 * MIB, "the 40 MiB of bodies are gone")
    assert sum(gateway.in_flight(name).values()) == 8
    await asyncio.to_thread(backend.finish, 8)
    await asyncio.gather(*asking)


async def test_a_request_too_large_to_be_kept_that_fails_counts_as_one_that_its_caller_was_told_of(
    gateway: Gateway,
) -> None:
    """Nothing of it is kept for a second attempt."""
    broken, good = gateway.backend("broken", "reset"), gateway.backend("good")
    rules = {"errorRate": 0.5, "windowSeconds": 30, "minRequests": 3, "openSeconds": 30}
    name = gateway.endpoint(broken, circuitBreaker=rules)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for n in range(3):  # three bodies: one body's failures alone open no breaker
            failed = await client.post(CHAT, content=body_of(name, 5 * MIB + n))
            assert failed.json()["error"]["code"] == "replica_failed"
    assert broken.stats()["requests"] == 3
    await until(lambda: gateway.known(name)["breaker"] == "open", "the endpoint's breaker is open")
    both = gateway.endpoint(broken, good)
    small = [await post(gateway, both) for _ in range(4)]
    assert {answer.headers["x-engine"] for answer in small} == {"good"}


@pytest.mark.parametrize("odd", ["host:", "host: a@b", f"content-length: {2**63}", "an engine's header"])
async def test_what_http_2_does_not_allow_ends_no_other_large_request(gateway: Gateway, odd: str) -> None:
    """All large requests share a few connections inside, and one caller, or one tenant's engine, could end each of them."""
    backend = gateway.backend("a")
    victim, engine = gateway.endpoint(backend), gateway.endpoint(gateway.backend("b", "odd-header"))
    streams = [asyncio.create_task(whole(gateway, victim, LONG, 0.1, size=40_000)) for _ in range(8)]
    await until(lambda: sum(gateway.in_flight(victim).values()) == 8, "all streams run")
    body = body_of(engine, 40_000)
    lines = {"host": "host: x", "content-length": "content-length: 40000"}
    if ":" in odd:
        lines[odd.partition(":")[0]] = odd
    head = "\r\n".join(lines.values())
    for _ in range(12):  # some of them come to each worker
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(f"POST {CHAT} HTTP/1.1\r\n{head}\r\n\r\n".encode() + body)
        assert await asyncio.wait_for(reader.readline(), 30)
        writer.close()
    await asyncio.to_thread(backend.finish, 8)
    assert await asyncio.gather(*streams) == [True] * 8


async def test_large_requests_that_callers_take_back_end_none_of_others(gateway: Gateway) -> None:
    """They share the connections inside: Envoy closed those on which many were taken back, with all that ran there."""
    backend = gateway.backend("a")
    victim, other = gateway.endpoint(backend), gateway.endpoint(gateway.backend("b"))
    streams = [asyncio.create_task(whole(gateway, victim, LONG, 0.2, size=40_000)) for _ in range(8)]
    await until(lambda: sum(gateway.in_flight(victim).values()) == 8, "all streams run")
    for _ in range(50):
        await asyncio.gather(*(taken_back(gateway, body_of(other, 40_000)) for _ in range(20)))
    await asyncio.to_thread(backend.finish, 8)
    assert await asyncio.gather(*streams) == [True] * 8


async def taken_back(gateway: Gateway, body: bytes) -> None:
    """A request that is given up before its body is whole."""
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body[:-1]
    )
    await asyncio.sleep(0.01)  # so that it has come in
    writer.transport.abort()
