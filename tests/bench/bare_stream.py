"""The least that streaming costs: a server that writes the same ready event to each caller once a step."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from typing import cast

import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-0123456789abcdef0123456789abcdef","created":1790000000,"model":"demo","object":'
    b'"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"},"logprobs":null,"finish_reason":null}]}\n\n'
)
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)


class Stream(asyncio.Protocol):
    def __init__(self, open_streams: set[asyncio.Transport]) -> None:
        self._open = open_streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        if self._transport not in self._open:
            self._transport.write(HEAD)
            self._open.add(self._transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._open.discard(self._transport)


async def _write_steadily(step: float, pipe: Connection) -> None:
    streams: set[asyncio.Transport] = set()
    server = await asyncio.get_running_loop().create_server(lambda: Stream(streams), "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    while True:
        await asyncio.sleep(step)
        for stream in streams:
            stream.write(CHUNK)


def serve(step: float, pipe: Connection) -> None:
    """Until this process is ended. The port goes through the pipe."""
    uvloop.run(_write_steadily(step, pipe))
