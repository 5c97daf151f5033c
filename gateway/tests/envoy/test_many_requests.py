"""docs/concepts/gateway.md: there are no more requests at one time than Envoy has memory for, on however few connections."""

import asyncio
import json
from contextlib import AsyncExitStack

import httpx

from gateway.tests.asking import CHAT, LONG, post, until
from gateway.tests.bounds import most_resident_bytes
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.http2_client import Exchange, Http2Client
from gateway.tests.uploads import MIB, body_of, streams
from llmendpoint_gateway.core.envoy.bounds import MAX_STREAMS


async def begin(client: Http2Client, body: bytes, count: int = 1) -> list[Exchange]:
    """Requests of which the last byte does not come."""
    length = {"content-length": str(len(body))}
    begun = [client.open(CHAT, length) for _ in range(count)]
    for exchange in begun:
        await client.send(exchange, body[:-1], end=False)
    return begun


def code(exchange: Exchange) -> str:
    return str(json.loads(exchange.body)["error"]["code"])


async def http2_stream(gateway: Gateway, name: str) -> bool:
    """Whether a stream that goes on until it is told to finish ended whole."""
    async with Http2Client(gateway.port) as client:
        pace = {"x-tokens": str(LONG), "x-interval": "0.5"}
        exchange = client.open(CHAT, {"content-type": "application/json", **pace})
        await client.send(exchange, body_of(name, 1000))
        await asyncio.wait_for(exchange.ended.wait(), 120)
        return exchange.ok and b"[DONE]" in exchange.body


async def served(gateway: Gateway, name: str) -> None:
    """Within half a minute, however many are refused before."""
    body = {"model": f"team/{name}"}
    await until(
        lambda: httpx.post(gateway.url + CHAT, json=body, timeout=30).status_code == 200, "it serves again"
    )


async def test_6400_small_requests_on_100_connections_take_no_more_memory_than_there_is_and_harm_nobody() -> (
    None
):
    """They took 386 MiB, and others waited for their answers for a minute."""
    limit = 192 * MIB
    with running_gateway(DEFAULT_MEMORY_BYTES=limit) as gateway:
        beside = gateway.backend("b")
        name, other = gateway.endpoint(gateway.backend("a")), gateway.endpoint(beside)
        running = asyncio.create_task(http2_stream(gateway, other))
        await until(lambda: sum(gateway.in_flight(other).values()) == 1, "a stream runs over HTTP/2")
        async with streams(gateway, name, 20), AsyncExitStack() as open_:
            body, opened = body_of(name, 32_000), []
            for _ in range(100):
                client = await open_.enter_async_context(Http2Client(gateway.port))
                length = {"content-length": str(len(body))}
                opened += [(client, client.open(CHAT, length)) for _ in range(MAX_STREAMS)]
                await client.drain()
            for client, exchange in opened:
                await client.send(exchange, body[:-1], end=False)
            for _ in range(10):
                assert (await post(gateway, name)).status_code == 200
            assert not running.done()
            await asyncio.to_thread(beside.finish, 1)
            assert await running
        most = most_resident_bytes(gateway.envoy.pid)
        print(f"\n6,400 requests on 100 connections: Envoy {most / MIB:.0f} MiB at most")
        assert most < limit
        assert (await post(gateway, name)).status_code == 200


async def test_requests_over_http_2_have_half_of_the_places_and_get_them_back() -> None:
    with running_gateway(MAX_CONNECTIONS=20) as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        body = body_of(name, 1000)
        async with Http2Client(gateway.port) as client:
            held = await begin(client, body, 10)
            more = await client.post(CHAT, body)
            assert (more.ok, code(more)) == (False, "gateway_overloaded")
            assert (await post(gateway, name)).status_code == 200
            for exchange in held:
                client.cancel(exchange)
            answers = await asyncio.gather(*(client.post(CHAT, body) for _ in range(10)))
            assert all(answer.ok for answer in answers)


async def test_a_request_beyond_all_places_is_told_when_to_come_again() -> None:
    with running_gateway(MAX_CONNECTIONS=20, HTTP2_SHARE=1) as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        async with Http2Client(gateway.port) as client:
            held = await begin(client, body_of(name, 1000), 20)
            answer = await post(gateway, name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "gateway_overloaded")
            assert answer.headers["retry-after"] == "2"
            assert gateway.metric("overload_refusals_total") == 1
            assert gateway.metric("connections") >= 1
            await client.send(held[0], body_of(name, 1000)[-1:])
            await asyncio.wait_for(held[0].ended.wait(), 30)
            assert held[0].ok
            assert (await post(gateway, name)).status_code == 200


async def test_answers_that_nobody_reads_keep_their_places_though_they_have_come() -> None:
    with running_gateway(MAX_CONNECTIONS=20, HTTP2_SHARE=1) as gateway:
        backend = gateway.backend("a")
        name = gateway.endpoint(backend)
        async with Http2Client(gateway.port, window=1) as client:
            for _ in range(20):
                exchange = client.open(CHAT, {"content-length": "200", "x-answer-bytes": "20000"})
                await client.send(exchange, body_of(name, 200))
            await until(lambda: backend.stats()["poured"] == 20 * 20_000, "all answers have come")
            answer = await post(gateway, name)
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "gateway_unavailable")
        await until(lambda: not gateway.in_flight(name), "their reader is gone")
        assert (await post(gateway, name)).status_code == 200


async def test_unread_lists_of_models_take_no_more_memory_than_there_is_and_go_when_it_is_short() -> None:
    """The picker answers these itself, and they keep no place. While the heap was full of them, a minute, all were refused."""
    limit = 128 * MIB
    with running_gateway(DEFAULT_MEMORY_BYTES=limit) as gateway:
        gateway.activate("many", "r1", names=tuple(f"{n}-{'x' * 200}" for n in range(60)))
        name = gateway.endpoint(gateway.backend("a"))
        gateway.settled()
        async with AsyncExitStack() as open_:
            for _ in range(100):
                client = await open_.enter_async_context(Http2Client(gateway.port, window=1))
                for _ in range(MAX_STREAMS):
                    client.open("/v1/models", {"x-long": "x" * 10_000}, end=True)
                await client.drain()
                await asyncio.sleep(0.02)
            await served(gateway, name)
        most = most_resident_bytes(gateway.envoy.pid)
        print(f"\n6,400 answers that nobody reads: Envoy {most / MIB:.0f} MiB at most")
        assert most < limit + 64 * MIB
