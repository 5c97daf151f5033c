"""A way to the API server that can be shut."""

from __future__ import annotations

import asyncio
import contextlib
import ssl


class Valve:
    """A TCP proxy to the API server that can be shut: connections break, and new ones are refused."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._shut = False
        self.port = 0

    async def __aenter__(self) -> Valve:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.shut()
        if self._server is not None:
            self._server.close()

    def shut(self) -> None:
        """The API server is gone."""
        self._shut = True
        for writer in list(self._open):
            writer.transport.abort()

    def reopen(self) -> None:
        """It is back."""
        self._shut = False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._shut:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._open |= {writer, far_writer}
        try:
            await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
        finally:
            self._open -= {writer, far_writer}


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := await source.read(2**16):
            sink.write(data)
            await sink.drain()
    sink.close()
