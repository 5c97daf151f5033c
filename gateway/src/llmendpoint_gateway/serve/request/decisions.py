"""The socket on which Envoy asks for decisions."""

import asyncio
from pathlib import Path
from typing import cast

import structlog

from llmendpoint_gateway.core.envoy.turns import Turns
from llmendpoint_gateway.core.envoy.wire import Connection, Handler
from llmendpoint_gateway.errors import WireError

log = structlog.get_logger()


class _Connection(asyncio.Protocol):
    """One of Envoy's connections. `open_transports` holds it while it is open."""

    def __init__(self, handler: Handler, open_transports: set[asyncio.Transport], turns: Turns) -> None:
        self._connection = Connection(handler, wake=self._flush, turns=turns)
        self._open_transports = open_transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_transports.add(self._transport)
        self._transport.write(self._connection.take_output())

    def data_received(self, data: bytes) -> None:
        try:
            self._connection.receive(data)
        except WireError as error:
            log.error("Envoy's connection is closed", cause=str(error), streams=self._connection.streams)
            self._transport.abort()
            return
        self._flush()

    def _flush(self) -> None:
        if output := self._connection.take_output():
            self._transport.write(output)

    def connection_lost(self, _error: Exception | None) -> None:
        self._open_transports.discard(self._transport)
        self._connection.close()


class DecisionServer:
    """Listens on `socket` from `start` until `stop`, which closes open connections."""

    def __init__(self, socket: Path, handler: Handler) -> None:
        self._socket = socket
        self._handler = handler
        self._transports: set[asyncio.Transport] = set()
        self._turns = Turns()

    async def start(self) -> None:
        self._socket.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(
            lambda: _Connection(self._handler, self._transports, self._turns), self._socket
        )

    def stop(self) -> None:
        self._server.close()
        for transport in list(self._transports):
            transport.abort()


def decisions_socket(control: Path) -> Path:
    """The socket for decisions, beside the control plane's."""
    return control.parent / "decisions.sock"
