"""A caller of `/v1/stream`, at a server or through a gateway."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Message,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)


class Server(Protocol):
    @property
    def url(self) -> str: ...


class Closed(Exception):
    """`code`: of RFC 6455, or the status of a refused handshake, whose body `body` is."""

    def __init__(self, code: int, reason: str | None = None, body: bytes = b"") -> None:
        super().__init__(code, reason)
        self.code, self.body = code, body


class Caller:
    """One WebSocket, as a client of wsproto. `headers`: further ones, with _ for -."""

    def __init__(self, server: Server, path: str = "/v1/stream", **headers: str) -> None:
        port = int(server.url.rsplit(":", 1)[1])
        self._host = f"127.0.0.1:{port}"
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=30)
        self._wire = WSConnection(ConnectionType.CLIENT)
        extra = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        self._socket.sendall(self._wire.send(Request(host=self._host, target=path, extra_headers=extra)))
        self._events: Iterator[Any] = self._read()
        first = next(self._events)
        if isinstance(first, RejectConnection):
            parts = [event.data for event in self._events if isinstance(event, RejectData)]
            raise Closed(first.status_code, body=b"".join(parts))
        assert isinstance(first, AcceptConnection)

    def _read(self) -> Iterator[Any]:
        while True:
            data = self._socket.recv(65536)
            self._wire.receive_data(data or None)
            for event in self._wire.events():
                if isinstance(event, Ping):
                    self._socket.sendall(self._wire.send(event.response()))
                yield event
                if isinstance(event, RejectData) and event.body_finished:
                    return
            if not data:
                return

    def send(self, data: str | bytes) -> None:
        self._socket.sendall(self._wire.send(Message(data=data)))

    def send_raw(self, frames: bytes) -> None:
        self._socket.sendall(frames)

    def ask(self, path: str, body: Any) -> None:
        self.send(json.dumps({"path": path, "body": body}))

    def frame(self) -> Any:
        """The next frame. Raises Closed."""
        text = ""
        for event in self._events:
            if isinstance(event, CloseConnection):
                raise Closed(event.code, event.reason)
            assert not isinstance(event, BytesMessage)
            if isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    return json.loads(text)
        raise Closed(1006)

    def answer(self) -> tuple[list[Any], int]:
        """The frames of one answer, and its status."""
        frames = []
        while not (frame := self.frame()).get("done"):
            frames.append(frame)
        return frames, frame["status"]

    def close(self) -> None:
        """In good order: the server is the one that closes the connection."""
        self._socket.sendall(self._wire.send(CloseConnection(1000)))
        while self._socket.recv(65536):
            pass

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._socket.close()
