"""The engine's end of the socket to the API process. The engine never waits for the API process to read, so an API
process that is busy, stopped or short of CPU delays no step."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator

from llmendpoint_server import protocol
from llmendpoint_server.errors import ProtocolError

HEARTBEAT_SECONDS = 1.0
MOST_UNREAD_BYTES = 64 * 2**20
"""About a million tokens. With a larger backlog the API process counts as lost."""
LAST_WORD_SECONDS = 5.0
_READ_BYTES = 2**20


class ApiProcessStalled(ProtocolError):
    """The API process has not read for so long that its backlog is full."""


class Connection:
    """Raises EOFError if the API process has ended, and ApiProcessStalled if its backlog is full."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._reader = protocol.EngineReader()
        self._unsent = bytearray()

    def send(self, *messages: protocol.FromEngine) -> None:
        """Write what the socket takes now. The rest follows with the next `send` or `receive`."""
        self._unsent += protocol.encode(*messages)
        self._flush()
        if len(self._unsent) > MOST_UNREAD_BYTES:
            raise ApiProcessStalled(
                f"The API process has left {len(self._unsent)} bytes unread; the limit is {MOST_UNREAD_BYTES}."
            )

    def _flush(self) -> None:
        try:
            while self._unsent:
                del self._unsent[: self._stream.send(self._unsent, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError) as error:
            raise EOFError from error

    def send_last(self, message: protocol.FromEngine) -> None:
        """Send the last message before this process exits; waits at most LAST_WORD_SECONDS for the API process to read
        it."""
        self._stream.settimeout(LAST_WORD_SECONDS)
        with contextlib.suppress(OSError):
            self._stream.sendall(self._unsent + protocol.encode(message))

    def receive(self, timeout: float) -> Iterator[protocol.ToEngine | protocol.UnreadableRequest]:
        """The messages that have arrived; waits up to `timeout` seconds for them."""
        unsent = [self._stream] if self._unsent else []
        readable, writable, _ = select.select([self._stream], unsent, [], timeout)
        if writable:
            self._flush()
        if readable:
            try:
                data = self._stream.recv(_READ_BYTES)
            except ConnectionResetError as error:
                raise EOFError from error
            if not data:
                raise EOFError
            yield from self._reader.feed(data)

    def first(self) -> protocol.Configure:
        """The first message, which must be `Configure`."""
        while True:
            for message in self.receive(HEARTBEAT_SECONDS):
                if not isinstance(message, protocol.Configure):
                    raise ProtocolError(
                        f"The first message is {type(message).__name__}; it must be Configure."
                    )
                return message
