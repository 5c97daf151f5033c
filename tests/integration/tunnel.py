"""A way from a process outside a cluster to names inside it."""

from __future__ import annotations

import asyncio
import contextlib
import time


class Tunnel:
    """A proxy for CONNECT: whatever KEDA asks for by its name in a cluster is at `port` here. There is no DNS and no
    network of Services beside a control plane alone."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._server: asyncio.Server | None = None
        self.port = 0
        self.asked: list[str] = []
        """host:port of each connection."""
        self.heard = 0.0
        """When KEDA last said something (monotonic)."""

    async def __aenter__(self) -> Tunnel:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            self.asked.append(head.split()[1].decode())
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except (OSError, asyncio.IncompleteReadError):
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            writer.close()
            return
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(self._pump(reader, far_writer, asks=True), self._pump(far_reader, writer))

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, asks: bool = False
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(2**16):
                self.heard = time.monotonic() if asks else self.heard
                sink.write(data)
                await sink.drain()
        sink.close()
