"""docs/concepts/gateway.md: what a caller may send is bounded on HTTP/1.1 and HTTP/2 alike, and no credentials reach an engine."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway.tests.asking import CHAT, LONG, post, stream, until
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.http2_client import Http2Client
from gateway.tests.uploads import MIB, PROTOCOLS, body_of, upload
from llmendpoint_gateway.core.envoy.bounds import MAX_BODY_BYTES, MAX_STREAMS

SLOW = "2s"


@pytest.fixture(scope="module")
def impatient() -> Iterator[Gateway]:
    """A gateway for which a request must come in whole within two seconds; a replica is awaited for three."""
    with running_gateway(REQUEST_TIMEOUT=SLOW) as running:
        yield running


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_32_mib_are_served_and_a_byte_more_is_refused_on_both_protocols(
    gateway: Gateway, protocol: str
) -> None:
    """On HTTP/2 the limit was the 16 MiB of a stream's window."""
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    answer = json.loads(await upload(gateway, protocol, body_of(name, MAX_BODY_BYTES)))
    assert answer["choices"][0]["message"]["content"] == "hello from a"
    refused = json.loads(await upload(gateway, protocol, body_of(name, MAX_BODY_BYTES + 1)))
    assert refused["error"]["code"] == "body_too_large"
    assert str(MAX_BODY_BYTES) in refused["error"]["message"]
    assert backend.stats()["requests"] == 1


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("size", [1000, 2 * MIB])
async def test_a_body_that_does_not_come_in_time_is_answered_with_408(
    impatient: Gateway, protocol: str, size: int
) -> None:
    name = impatient.endpoint(impatient.backend("a"))
    answer = json.loads(await upload(impatient, protocol, body_of(name, size), short=10))
    assert answer["error"]["code"] == "request_timeout"
    assert answer["error"]["type"] == "invalid_request_error"
    assert SLOW in answer["error"]["message"]


@pytest.mark.parametrize("head", ["content-length: 100", "transfer-encoding: chunked"])
async def test_a_get_whose_body_does_not_come_in_time_is_answered_with_408(
    impatient: Gateway, head: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port)
    writer.write(f"GET /v1/models HTTP/1.1\r\nhost: x\r\n{head}\r\n\r\n".encode())
    assert (await asyncio.wait_for(reader.readline(), 30)).split()[1] == b"408"
    writer.close()


async def test_a_caller_does_not_say_that_his_body_is_whole(impatient: Gateway) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.port)
    head = (
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-gateway-whole: 1\r\nx-gateway-cluster: a\r\ncontent-length: 9"
    )
    writer.write(f"{head}\r\n\r\n".encode())
    assert (await asyncio.wait_for(reader.readline(), 30)).split()[1] == b"408"
    writer.close()


async def test_the_time_for_a_body_does_not_count_while_a_request_waits_or_is_answered(
    impatient: Gateway,
) -> None:
    """A request that came in whole may wait for a replica, and be answered, for longer than that."""
    backend = impatient.backend("a")
    name = impatient.endpoint(backend)
    running = asyncio.create_task(stream(impatient, name, tokens=LONG, interval=0.1))
    impatient.activate("waits", "r1", replicas=1)
    await until(lambda: "team/waits" in impatient.state()["endpoints"], "the endpoint is known")
    waiting = await post(impatient, "waits")
    assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "no_ready_replica")
    await asyncio.to_thread(backend.finish, 1)
    assert await running == "whole a"


async def test_a_request_with_too_large_headers_is_refused_in_openais_shape(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    for headers in ({"x-big": "x" * 70_000}, {f"x-{n}": "1" for n in range(120)}):
        answer = await post(gateway, name, **headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (431, "headers_too_large")
    assert (await post(gateway, name, **{"x-big": "x" * 8000})).status_code == 200


async def test_a_http2_connection_has_a_bounded_number_of_requests(gateway: Gateway) -> None:
    async with Http2Client(gateway.port) as client:
        assert client.settings[3] == MAX_STREAMS
        assert client.settings[4] <= MIB


async def test_a_connection_that_opens_requests_only_to_take_them_back_is_closed(gateway: Gateway) -> None:
    """CVE-2023-44487; others on their own connections go on."""
    name = gateway.endpoint(gateway.backend("a"))
    async with Http2Client(gateway.port) as client:
        for _ in range(3000):
            if client.closed.is_set():
                break
            client.cancel(client.open("/v1/models", {}, end=True))
            await client.drain()
            await asyncio.sleep(0)
        await asyncio.wait_for(client.closed.wait(), 30)
    async with Http2Client(gateway.port) as other:
        assert (await other.post(CHAT, body_of(name, 1000))).ok


async def test_a_callers_credentials_do_not_reach_the_engine(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    secrets = {"authorization": "Bearer sk-1", "cookie": "session=1", "proxy-authorization": "Basic x"}
    for size in (100, 2 * MIB):
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
            answer = await client.post(CHAT, content=body_of(name, size), headers={**secrets, "x-kept": "1"})
        assert answer.status_code == 200
    async with httpx.AsyncClient() as client:
        seen = (await client.get(f"http://{backend.address}/stub/seen")).json()
    assert [request["length"] for request in seen] == [100, 2 * MIB]
    for request in seen:
        assert request["headers"]["x-kept"] == "1"
        assert not request["headers"].keys() & secrets.keys()


async def test_of_the_priorities_only_low_reaches_the_engine(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    words = ("high", "normal", "low", "LOW", "urgent", "")
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for size in (100, 2 * MIB):
            for word in words:
                headers = {"x-llmendpoint-priority": word}
                assert (
                    await client.post(CHAT, content=body_of(name, size), headers=headers)
                ).status_code == 200
        seen = (await client.get(f"http://{backend.address}/stub/seen")).json()
    passed = [request["headers"].get("x-llmendpoint-priority") for request in seen]
    assert passed == 2 * [None, None, "low", "LOW", None, None]


async def test_a_request_keeps_the_id_that_its_caller_gave_it(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    mine = "6f5b3d1e-1111-4222-8333-444455556666"
    answer = await post(gateway, name, **{"x-request-id": mine})
    assert answer.headers["x-request-id"] == mine
    async with httpx.AsyncClient() as client:
        (seen,) = (await client.get(f"http://{backend.address}/stub/seen")).json()
    assert seen["headers"]["x-request-id"] == mine
    assert len((await post(gateway, name)).headers["x-request-id"]) == 36
    long = await post(gateway, name, **{"x-request-id": "y" * 5000})
    await until(lambda: long.headers["x-request-id"][:128] in gateway.log("envoy"), "it is in the log")
    assert "y" * 129 not in gateway.log("envoy")


async def test_http_1_0_is_answered(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    body = body_of(name, 100)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(f"POST {CHAT} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await asyncio.wait_for(reader.read(), 30)
    writer.close()
    assert answer.split()[1] == b"200"
    assert b"hello from a" in answer


@pytest.mark.parametrize("size", [100, 2 * MIB])
async def test_a_compressed_body_is_refused_before_anybody_reads_it(gateway: Gateway, size: int) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        refused = await client.post(CHAT, content=b"x" * size, headers={"content-encoding": "gzip"})
        plain = await client.post(CHAT, content=body_of(name, 99), headers={"content-encoding": "Identity"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (415, "unsupported_encoding")
    assert refused.headers["content-type"] == "application/json"
    assert plain.status_code == 200
    assert backend.stats()["requests"] == 1


async def test_a_connection_to_an_engine_is_probed_so_that_a_dead_node_ends_its_streams(
    gateway: Gateway,
) -> None:
    """A node without power answers nothing: streams hung for up to an hour."""
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    running = asyncio.create_task(stream(gateway, name, tokens=1, interval=3))
    await until(lambda: backend.stats()["running"], "the engine answers")
    await until(lambda: keepalive_timers(backend.port), "a keepalive timer runs")
    (seconds,) = keepalive_timers(backend.port)
    assert 0 < seconds <= 30
    assert await running == "whole a"


def keepalive_timers(port: int) -> list[float]:
    """Seconds until the next probe, of established connections to this port (see proc_pid_net(5))."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    mine = [row for row in rows if int(row[2].partition(":")[2], 16) == port and row[3] == "01"]
    timers = [row[5].split(":") for row in mine]
    return [int(when, 16) / 100 for kind, when in timers if kind == "02"]


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_body_in_chunks_is_bounded_where_none_belongs(gateway: Gateway, method: str) -> None:
    """It has no length, and a GET does not go by the inner listener."""
    with socket.create_connection(("127.0.0.1", gateway.port), 10) as caller:
        head = f"{method} /v1/models HTTP/1.1\r\nhost: gateway\r\ntransfer-encoding: chunked\r\n\r\n"
        caller.sendall(head.encode())
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        with contextlib.suppress(ConnectionError):
            for _ in range(8):
                caller.sendall(chunk)
        assert caller.recv(4096).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("length", [32 * 1024 + 1, 2**62, 2**63 - 1])
async def test_any_length_that_is_not_small_goes_by_the_inner_listener(gateway: Gateway, length: int) -> None:
    """Beyond what the route compared, 32 MiB of each connection stood where the overload manager takes nothing back: 16
    of them took 553 MiB of 192."""
    name = "http.large.downstream_rq_active"

    def inside() -> int:
        return int(gateway.admin(f"/stats?filter=^{name}$").rpartition(": ")[2])

    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(
        f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n".encode() + b"x" * 1000
    )
    await until(lambda: inside() == 1, "the inner listener has it")
    writer.close()
    await until(lambda: inside() == 0, "it is gone")
