"""Streaming clients that do next to nothing but note when a token comes."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT_S = 600
_END = b"\n\n"


@dataclass(frozen=True)
class Ask:
    prompt: Sequence[int]
    max_tokens: int

    def http(self, model: str) -> bytes:
        body = json.dumps(
            {
                "model": model,
                "prompt": list(self.prompt),
                "max_tokens": self.max_tokens,
                "temperature": 0,
                "ignore_eos": True,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        head = f"POST /v1/completions HTTP/1.1\r\nhost: bench\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return (head + body).encode()


@dataclass(frozen=True)
class Stream:
    """When the request was sent, and when each event with text came. `tokens`: by the server's own count."""

    sent: float
    events: tuple[float, ...]
    tokens: int

    @property
    def ttft(self) -> float:
        return self.events[0] - self.sent

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in itertools.pairwise(self.events)]


class RequestFailed(Exception):
    """A server answered with an error, or cut a stream."""


async def stream(port: int, model: str, ask: Ask) -> Stream:
    """One request on a connection of its own. Raises RequestFailed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        sent = time.perf_counter()
        writer.write(ask.http(model))
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n", 1)[0]:
            raise RequestFailed(
                f"{head.splitlines()[0].decode()}: {(await reader.read(2000)).decode(errors='replace')}"
            )
        events: list[float] = []
        tokens = 0
        while True:
            event = await reader.readuntil(_END)
            if b"data: [DONE]" in event:
                break
            if b'"usage":{' in event or b'"usage": {' in event:
                tokens = usage_of(event)
            if b'"choices":[]' not in event and b'"choices": []' not in event:
                events.append(time.perf_counter())
    except asyncio.IncompleteReadError as error:
        raise RequestFailed(f"the stream ended after {len(error.partial)} bytes of an event") from error
    finally:
        writer.close()
    if tokens != ask.max_tokens:
        raise RequestFailed(f"{tokens} tokens came, not {ask.max_tokens}")
    return Stream(sent, tuple(events), tokens)


def usage_of(event: bytes) -> int:
    """The completion tokens of an event with usage; the event may be preceded by the framing of HTTP's chunks."""
    data = event.partition(b"data: ")[2]
    return int(json.loads(data)["usage"]["completion_tokens"])


async def all_of(port: int, model: str, asks: Sequence[Ask], at_once: int) -> tuple[list[Stream], float]:
    """All requests, `at_once` at a time, and the seconds from the first to the last."""
    waiting = iter(asks)
    found: list[Stream] = []

    async def client() -> None:
        found.extend([await stream(port, model, ask) for ask in waiting])

    start = time.perf_counter()
    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as clients:
        for _ in range(min(at_once, len(asks))):
            clients.create_task(client())
    return found, time.perf_counter() - start
