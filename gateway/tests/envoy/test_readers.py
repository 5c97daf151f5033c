"""docs/concepts/gateway.md: a caller who does not read an answer holds little memory, is cut after a time, and delays nobody else."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from gateway.tests.asking import CHAT, post, until
from gateway.tests.bounds import resident_bytes
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.uploads import MIB, body_of
from llmendpoint_gateway.core.envoy.bounds import (
    HELD_BYTES,
    INNER_WINDOW_BYTES,
    SMALL_BODY_BYTES,
    STREAM_WINDOW_BYTES,
)

ANSWER = 64 * MIB  # more than the kernel takes on its way


@contextmanager
def readers(gateway: Gateway, body: bytes, count: int) -> Iterator[list[socket.socket]]:
    """Connections that ask for a large answer, with nearly as much in headers as they may, and read nothing of it; their own
    windows are as small as can be."""
    lines = (
        f"POST {CHAT} HTTP/1.1",
        "host: x",
        f"x-answer-bytes: {ANSWER}",
        f"content-length: {len(body)}",
        f"x-long: {'x' * 14_000}",
    )
    head = "\r\n".join(lines) + "\r\n\r\n"
    callers = []
    try:
        for _ in range(count):
            caller = socket.socket()
            callers.append(caller)
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            caller.connect(("127.0.0.1", gateway.port))
            caller.sendall(head.encode() + body)
        yield callers
    finally:
        for caller in callers:
            caller.close()


async def test_200_callers_who_do_not_read_their_answers_hold_little_of_envoys_memory() -> None:
    """Each held 2 MiB over HTTP/1.1, where the overload manager cannot take it back."""
    with running_gateway() as gateway:
        backend = gateway.backend("a")
        name = gateway.endpoint(backend)
        assert (await post(gateway, name)).status_code == 200
        before = resident_bytes(gateway.envoy.pid)
        with readers(gateway, body_of(name, SMALL_BODY_BYTES), 200):
            await until(lambda: sum(gateway.in_flight(name).values()) == 200, "all are being answered")
            await until(lambda: standstill(gateway), "nothing moves")
            grown = resident_bytes(gateway.envoy.pid) - before
            print(f"\n200 readers who do not read: {grown / 200 / 1024:.0f} KiB each")
            assert (await post(gateway, name)).status_code == 200
        assert grown < 1.1 * 200 * HELD_BYTES  # pages are not all full


async def test_readers_of_large_requests_hold_a_small_window_of_what_comes_from_inside() -> None:
    """Of each, 256 KiB waited outside, on HTTP/1.1, where the overload manager cannot reset it. The rest is inside."""
    with running_gateway() as gateway:
        name = gateway.endpoint(gateway.backend("a"))

        def allocated() -> int:
            return int(json.loads(gateway.admin("/memory"))["allocated"])

        assert (await post(gateway, name)).status_code == 200
        before = allocated()
        with readers(gateway, body_of(name, 40_000), 100):
            await until(lambda: sum(gateway.in_flight(name).values()) == 100, "all are being answered")
            await until(lambda: standstill(gateway), "nothing moves")
            each = (allocated() - before) / 100
            print(f"\n100 readers of large requests: {each / 1024:.0f} KiB each")
        assert each < HELD_BYTES + STREAM_WINDOW_BYTES + 3 * INNER_WINDOW_BYTES


def standstill(gateway: Gateway) -> bool:
    """No engine has written anything for a while."""

    def poured() -> list[int]:
        return [backend.stats()["poured"] for backend in gateway.backends]

    first = poured()
    time.sleep(0.5)
    return sum(first) > 0 and poured() == first


async def test_a_caller_who_reads_nothing_is_cut_and_one_who_waits_for_his_answer_is_not() -> None:
    timeout = 2
    with running_gateway(READER_TIMEOUT=timeout) as gateway:
        backend = gateway.backend("a")
        name = gateway.endpoint(backend)
        waiting = asyncio.create_task(post(gateway, name, **{"x-delay": "60"}))
        with readers(gateway, body_of(name, 100), 3):
            await until(lambda: backend.stats()["running"] == 4, "all are being answered")
            await until(lambda: backend.stats()["running"] == 1, "those who do not read are cut")
        await asyncio.sleep(timeout)  # it waits for twice as long as those could
        assert backend.stats()["running"] == 1
        backend.finish(1)
        assert (await waiting).status_code == 200


async def test_readers_of_large_requests_who_do_not_read_hold_up_nobody_on_the_connection_inside(
    gateway: Gateway,
) -> None:
    """Large requests share the connections to the inner listener. With Envoy's own windows, of 16 MiB for a request and 24
    for all, a few readers stopped the answers of all others."""
    name = gateway.endpoint(gateway.backend("a"))
    body = body_of(name, 2 * MIB)
    with readers(gateway, body, 20):
        await until(lambda: sum(gateway.in_flight(name).values()) == 20, "all are being answered")
        await until(lambda: standstill(gateway), "nothing moves")
        async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as client:
            for _ in range(6):
                answer = await client.post(CHAT, content=body, headers={"x-answer-bytes": str(MIB)})
                assert len(answer.content) == MIB


async def test_large_uploads_that_stand_still_hold_up_no_other_one(gateway: Gateway) -> None:
    """40 of them take more than the 16 MiB that their connection inside had for all."""
    name = gateway.endpoint(gateway.backend("a"))
    body = body_of(name, 2 * MIB)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    stalled = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(40)]
    for _, writer in stalled:
        writer.write(head + body[:-1])
    async with httpx.AsyncClient(base_url=gateway.url, timeout=20) as client:
        for _ in range(6):
            assert (await client.post(CHAT, content=body)).status_code == 200
    for _, writer in stalled:
        writer.write(body[-1:])
    for reader, writer in stalled:
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()
