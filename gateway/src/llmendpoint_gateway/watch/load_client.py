"""Asks many replicas for their load at little cost: a connection to each, one question at a time on it, no task.

An HTTP client for everything takes three times as long for a reading, and thousands of replicas are read.
"""

import asyncio
from collections.abc import Callable
from typing import cast

from llmendpoint_gateway.core.endpoint.load_answer import MOST_PIECES, Answer, read_answer
from llmendpoint_gateway.errors import BadAnswer

TIMEOUT_SECONDS = 1.0
KEPT_SECONDS = 4.0  # engines close an idle connection after 5 s


class LoadClient:
    """`answered` gets what a replica answered; None: nothing in time, or nothing that is HTTP. It must not raise.
    `clock`: seconds, monotonic. `sweep` must be called every now and then: it ends what takes too long."""

    def __init__(self, answered: Callable[[str, Answer | None], None], clock: Callable[[], float]) -> None:
        self._answered, self._clock = answered, clock
        # Both in the order of time.
        self._asking: dict[str, tuple[_Connection, float]] = {}
        self._kept: dict[str, tuple[_Connection, float]] = {}

    def ask(self, address: str) -> None:
        """Ask the replica at this address (`ip:port`). What was asked of a pod that had the address before is dropped."""
        if left := self._asking.pop(address, None):
            left[0].close()
        found = self._kept.pop(address, None)
        connection = found[0] if found else _Connection(self, address)
        self._asking[address] = (connection, self._clock())
        if found:
            connection.send()
        else:
            connection.open()

    def sweep(self) -> None:
        now = self._clock()
        for address, connection in _older(self._asking, now - TIMEOUT_SECONDS):
            self.finished(connection, address, None)
        for address, connection in _older(self._kept, now - KEPT_SECONDS):
            del self._kept[address]
            connection.close()

    def close(self) -> None:
        for connection, _ in (*self._asking.values(), *self._kept.values()):
            connection.close()
        self._asking.clear()
        self._kept.clear()

    def finished(self, connection: "_Connection", address: str, answer: Answer | None) -> None:
        """The question on this connection has ended."""
        if self._asking.get(address, (None,))[0] is not connection:
            connection.close()
            return
        del self._asking[address]
        if answer and answer.kept:
            self._kept[address] = (connection, self._clock())
        else:
            connection.close()
        self._answered(address, answer)

    def lost(self, connection: "_Connection", address: str, unused: bool) -> None:
        """The connection has ended without an answer. `unused`: it was kept, and the replica sent nothing on it: it may
        have closed it at the same moment, so a new one is tried."""
        if self._kept.get(address, (None,))[0] is connection:
            del self._kept[address]
        elif self._asking.get(address, (None,))[0] is connection:
            if unused:
                again = _Connection(self, address)
                self._asking[address] = (again, self._asking[address][1])
                again.open()
            else:
                self.finished(connection, address, None)


def _older(of: dict[str, tuple["_Connection", float]], until: float) -> list[tuple[str, "_Connection"]]:
    found = []
    for address, (connection, since) in of.items():
        if since > until:
            break
        found.append((address, connection))
    return found


class _Connection(asyncio.Protocol):
    """One connection to one replica."""

    def __init__(self, client: LoadClient, address: str) -> None:
        self._client, self._address = client, address
        self._host, _, self._port = address.rpartition(":")
        self._request = (
            f"GET /load HTTP/1.1\r\nHost: {address}\r\nAccept: application/json\r\n"
            "User-Agent: llmendpoint-gateway\r\n\r\n"
        ).encode()
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._received = b""
        self._pieces = self._questions = 0
        self._waiting = self._closed = False

    def open(self) -> None:
        self._opening = asyncio.create_task(self._open())

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, self._host.strip("[]"), int(self._port))
        except (OSError, ValueError):
            self._client.finished(self, self._address, None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        if self._closed:
            self._transport.abort()
        else:
            self.send()

    def send(self) -> None:
        assert self._transport is not None
        self._received, self._pieces = b"", 0
        self._questions += 1
        self._waiting = True
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self._waiting:  # nothing was asked
            self._client.lost(self, self._address, unused=False)
            self.close()
        else:
            self._received += data
            self._pieces += 1
            self._read(ended=False)

    def connection_lost(self, _: Exception | None) -> None:
        self._closed = True
        if self._waiting and self._received:
            self._read(ended=True)
        else:
            self._client.lost(self, self._address, unused=self._waiting and self._questions > 1)

    def _read(self, *, ended: bool) -> None:
        answer, bad = None, self._pieces > MOST_PIECES
        try:
            answer = read_answer(self._received, ended=ended)
        except BadAnswer:
            bad = True
        if answer is not None or bad:
            self._waiting = False
            self._client.finished(self, self._address, answer)

    def close(self) -> None:
        self._closed = True
        self._waiting = False
        if self._opening is not None:
            self._opening.cancel()
        if self._transport is not None:
            self._transport.abort()
