"""What callers send is bounded, and who keeps within the bounds does not notice those who do not."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway.tests.bounds import most_resident_bytes, resident_bytes, wait_for
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.http2_client import Http2Client
from gateway.tests.test_traps import CHAT, post, stream, until
from llmendpoint_gateway.container import cpu_limit, memory_limit
from llmendpoint_gateway.core.bounds import (
    DEFAULT_MEMORY_BYTES,
    DEFAULT_WORKERS,
    MAX_BODY_BYTES,
    MAX_CONNECTIONS,
    MAX_STREAMS,
    make_share,
)

MIB = 1 << 20
PROTOCOLS = ("HTTP/1.1", "HTTP/2")
SLOW = "2s"


@pytest.fixture(scope="module")
def impatient() -> Iterator[Gateway]:
    """A gateway for which a request must come in whole within two seconds; a replica is awaited for three."""
    with running_gateway(REQUEST_TIMEOUT=SLOW) as running:
        yield running


def body_of(name: str, size: int) -> bytes:
    """A request for a model, padded to exactly this size."""
    start = json.dumps({"model": f"team/{name}", "pad": ""}).encode()
    return start[:-2] + b"x" * (size - len(start)) + start[-2:]


async def upload(gateway: Gateway, protocol: str, body: bytes, short: int = 0) -> bytes:
    """What came back for a request of which the last `short` bytes are never sent; nothing where the connection broke."""
    sent = body[: len(body) - short]
    if protocol == "HTTP/2":
        async with Http2Client(gateway.port) as client:
            exchange = client.open(CHAT, {"content-length": str(len(body))})
            await client.send(exchange, sent, end=not short)
            await asyncio.wait_for(exchange.ended.wait(), 60)
            return exchange.body
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    answer = b""
    try:
        writer.write(head.encode())
        for at in range(0, len(sent), 1 << 16):
            writer.write(sent[at : at + (1 << 16)])
            await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answer.partition(b"\r\n\r\n")[2]


async def whole(gateway: Gateway, name: str, tokens: int, interval: float) -> bool:
    """Whether a streaming request was answered to its end; with no more to it than a socket, since there are hundreds."""
    body = body_of(name, 100)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-tokens: {tokens}\r\nx-interval: {interval}\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200") and b"[DONE]" in answer


@asynccontextmanager
async def streams(gateway: Gateway, name: str, count: int) -> AsyncIterator[None]:
    """So many streams, which go on for ten seconds or more from now; at the end all have ended whole."""
    seconds = 20 + count // 5  # more where it takes longer until all have begun
    running = [asyncio.create_task(whole(gateway, name, 2 * seconds, 0.5)) for _ in range(count)]
    await until(lambda: sum(gateway.in_flight(name).values()) == count, "all streams run")
    yield
    assert await asyncio.gather(*running) == [True] * count


# -- memory


async def attack(gateway: Gateway, protocol: str, uploads: int, size: int, running: int) -> None:
    """Uploads that are never finished, while streams run and small requests come."""
    name = gateway.endpoint(gateway.backend("a"))
    before = gateway.resident_bytes()
    async with streams(gateway, name, running):
        body = body_of(name, size)
        slow = [asyncio.create_task(upload(gateway, protocol, body, short=1000)) for _ in range(uploads)]
        for _ in range(20):
            assert (await post(gateway, name)).status_code == 200
            await asyncio.sleep(0.1)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert gateway.resident_bytes() < before + 32 * MIB
    assert (await post(gateway, name)).status_code == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_uploads_that_never_end_take_no_more_memory_than_there_is_and_harm_nobody(
    protocol: str,
) -> None:
    """Four times as much is sent as Envoy may hold."""
    limit = 192 * MIB
    with running_gateway(DEFAULT_MEMORY_BYTES=limit) as gateway:
        await attack(gateway, protocol, uploads=24, size=MAX_BODY_BYTES, running=20)
        assert most_resident_bytes(gateway.envoy.pid) < limit + 64 * MIB  # its code is mapped and counts too


async def test_many_large_bodies_at_once_are_decided_one_after_another() -> None:
    """Each is 32 MiB on its way to the picker, which held them all."""
    with running_gateway() as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        body = body_of(name, 24 * MIB)
        answers = await asyncio.gather(*(upload(gateway, "HTTP/1.1", body) for _ in range(8)))
        assert all(b"hello from a" in answer or b"gateway_overloaded" in answer for answer in answers)
        assert sum(b"hello from a" in answer for answer in answers) >= 4
        assert most_resident_bytes(gateway.picker.pid) < 256 * MIB
        assert most_resident_bytes(gateway.envoy.pid) < 1024 * MIB
        assert (await post(gateway, name)).status_code == 200


@pytest.mark.extended
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_64_uploads_of_32_mib_that_never_end_keep_envoy_below_1_gib_and_200_streams_whole(
    protocol: str,
) -> None:
    with running_gateway() as gateway:
        await attack(gateway, protocol, uploads=64, size=MAX_BODY_BYTES, running=200)
        envoy, picker = (most_resident_bytes(p.pid) for p in (gateway.envoy, gateway.picker))
        print(f"\n{protocol}: Envoy {envoy / MIB:.0f} MiB, picker {picker / MIB:.0f} MiB at most")
        assert envoy < 1024 * MIB
        assert picker < 256 * MIB


async def test_a_large_body_is_not_kept_while_its_answer_is_streamed(gateway: Gateway) -> None:
    """Kept for a retry, 5,000 bodies of 200 kB were 1 GB."""
    name = gateway.endpoint(gateway.backend("a"))

    def allocated() -> int:
        return int(json.loads(gateway.admin("/memory"))["allocated"])

    async def ask() -> None:
        async with (
            httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
            client.stream(
                "POST", CHAT, content=body_of(name, 800_000), headers={"x-tokens": "60", "x-interval": "0.1"}
            ) as response,
        ):
            async for _ in response.aiter_raw():
                pass

    before = allocated()
    asking = [asyncio.create_task(ask()) for _ in range(40)]
    await until(lambda: sum(gateway.in_flight(name).values()) == 40, "all are being answered")
    await until(lambda: allocated() - before < 10 * MIB, "the 32 MB of bodies are gone")
    assert sum(gateway.in_flight(name).values()) == 40
    await asyncio.gather(*asking)


async def test_a_large_request_that_fails_is_not_tried_again_and_counts_as_one_that_its_caller_was_told_of(
    gateway: Gateway,
) -> None:
    """Nothing of it is kept for a second attempt."""
    broken, good = gateway.backend("broken", "reset"), gateway.backend("good")
    rules = {"errorRate": 0.5, "windowSeconds": 30, "minRequests": 3, "openSeconds": 30}
    name = gateway.endpoint(broken, circuitBreaker=rules)
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        for n in range(3):  # of different callers, else it might be one caller's doing
            body, headers = body_of(name, 200_000 + n), {"authorization": f"Bearer sk-{n}"}
            failed = await client.post(CHAT, content=body, headers=headers)
            assert failed.json()["error"]["code"] == "replica_failed"
    assert broken.stats()["requests"] == 3
    await until(lambda: gateway.known(name)["breaker"] == "open", "the endpoint's breaker is open")
    both = gateway.endpoint(broken, good)
    small = [await post(gateway, both) for _ in range(4)]
    assert {answer.headers["x-engine"] for answer in small} == {"good"}


# -- bodies and time


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


async def test_the_time_for_a_body_does_not_count_while_a_request_waits_or_is_answered(
    impatient: Gateway,
) -> None:
    """A request that came in whole may wait for a replica, and be answered, for longer than that."""
    backend = impatient.backend("a")
    name = impatient.endpoint(backend)
    running = asyncio.create_task(stream(impatient, name, tokens=50, interval=0.1))
    impatient.activate("waits", "r1", replicas=1)
    await until(lambda: "team/waits" in impatient.state()["endpoints"], "the endpoint is known")
    waiting = await post(impatient, "waits")
    assert (waiting.status_code, waiting.json()["error"]["code"]) == (503, "no_ready_replica")
    assert await running == "whole a"


async def test_a_request_with_too_large_headers_is_refused_in_openais_shape(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    for headers in ({"x-big": "x" * 70_000}, {f"x-{n}": "1" for n in range(120)}):
        answer = await post(gateway, name, **headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (431, "headers_too_large")
    assert (await post(gateway, name, **{"x-big": "x" * 8000})).status_code == 200


# -- HTTP/2


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


# -- what reaches an engine


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


# -- engines


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


# -- its share of the machine


def test_workers_follow_the_cpu_limit_and_never_the_cores_of_the_node() -> None:
    workers = [make_share(None, limit, 10**6).workers for limit in (0.1, 1, 1.5, 4, 64)]
    assert workers == [1, 1, 2, 4, 64]
    assert make_share(None, None, 10**6).workers == DEFAULT_WORKERS


def test_the_heap_leaves_room_in_the_memory_limit_and_connections_in_the_open_files() -> None:
    share = make_share(512 * MIB, None, 10**6)
    assert 0.7 < share.heap_bytes / (512 * MIB) < 0.9
    assert make_share(None, None, 10**6).memory_bytes == DEFAULT_MEMORY_BYTES
    assert (make_share(None, None, 10**6).connections, make_share(None, None, 1024).connections) == (
        MAX_CONNECTIONS,
        341,
    )


@pytest.mark.parametrize(
    ("files", "cpus", "memory"),
    [
        ({"cpu.max": "150000 100000", "memory.max": "1073741824"}, 1.5, 2**30),
        ({"cpu.max": "max 100000", "memory.max": "max"}, None, None),
        (
            {
                "cpu/cpu.cfs_quota_us": "400000",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "268435456",
            },
            4.0,
            2**28,
        ),
        (
            {
                "cpu/cpu.cfs_quota_us": "-1",
                "cpu/cpu.cfs_period_us": "100000",
                "memory/memory.limit_in_bytes": "9223372036854771712",
            },
            None,
            None,
        ),
        ({}, None, None),
    ],
)
def test_limits_are_read_from_control_groups_of_both_versions(
    tmp_path: Path, files: dict[str, str], cpus: float | None, memory: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert (cpu_limit(tmp_path), memory_limit(tmp_path)) == (cpus, memory)


def test_envoy_runs_as_many_workers_as_it_was_given(gateway: Gateway) -> None:
    options = json.loads(gateway.admin("/server_info"))["command_line_options"]
    assert options["concurrency"] == make_share(None, cpu_limit(), 10**6).workers


def test_2000_clusters_cost_envoy_little_and_its_counters_stay_few() -> None:
    """Every cluster brought over a hundred counters and gauges for each worker."""
    with running_gateway() as gateway:
        few, before = len(gateway.admin("/stats").splitlines()), resident_bytes(gateway.envoy.pid)
        for n in range(2000):
            gateway.activate(f"many{n}", "r1")
        backend = gateway.backend("a")
        for n in range(2000):
            gateway.replica(f"many{n}", "r1", backend)
        wait_for(lambda: len(gateway.clusters()) == 2000, "Envoy has 2,000 clusters", 120)
        gateway.settled()
        grown = resident_bytes(gateway.envoy.pid) - before
        print(
            f"\n2,000 clusters: {grown / MIB:.0f} MiB, {len(gateway.admin('/stats').splitlines())} counters"
        )
        assert len(gateway.admin("/stats").splitlines()) < few + 100
        assert grown < 160 * MIB
        for n in (0, 1999):
            answer = httpx.post(gateway.url + CHAT, json={"model": f"team/many{n}"}, timeout=60)
            assert answer.status_code == 200
        wait_for(
            lambda: gateway.revisions("many1999") == {"r1": {"requests": 1, "errors": 0}},
            "its request is counted",
        )
        assert gateway.revisions("many1") == {"r1": {"requests": 0, "errors": 0}}


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
