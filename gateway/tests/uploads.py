"""Requests of any size by both protocols, and streams that are to end whole."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.tests.asking import CHAT, LONG, until
from gateway.tests.harness import Gateway
from gateway.tests.http2_client import Http2Client

MIB = 1 << 20
PROTOCOLS = ("HTTP/1.1", "HTTP/2")


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


async def whole(gateway: Gateway, name: str, tokens: int, interval: float, size: int = 100) -> bool:
    """Whether a streaming request was answered to its end; with no more to it than a socket, since there are hundreds."""
    body = body_of(name, size)
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-tokens: {tokens}\r\nx-interval: {interval}\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    answer = await reader.read()
    writer.close()
    return answer.startswith(b"HTTP/1.1 200") and b"[DONE]" in answer


@asynccontextmanager
async def streams(gateway: Gateway, name: str, count: int) -> AsyncIterator[None]:
    """So many streams, which go on until the block ends; all of them end whole."""
    running = [asyncio.create_task(whole(gateway, name, LONG, 0.5)) for _ in range(count)]
    await until(lambda: sum(gateway.in_flight(name).values()) == count, "all streams run")
    [backend] = [b for b in gateway.backends if b.address in gateway.in_flight(name)]
    await until(lambda: backend.stats()["running"] == count, "all have reached the engine")
    yield
    assert not any(one.done() for one in running), "a stream ended before it was told to"
    await asyncio.to_thread(backend.finish, count)
    assert await asyncio.gather(*running) == [True] * count
