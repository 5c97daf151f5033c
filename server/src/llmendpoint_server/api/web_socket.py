"""`/v1/stream`: the API's POST routes over a WebSocket, a JSON frame an event.

A caller sends `{"path": "/v1/chat/completions", "body": {…}}`, the body as it would be posted, and gets each event of the answer as
a frame; without `stream` the answer is one frame. The last frame of each answer, of a refusal too, is `{"done": true, "status":
200}`. One request at a time: a frame that comes before that ends the connection, as leaving does, and the answer ends in the engine.

Each request passes through the whole HTTP application, so that it has the same bounds, errors and line in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Scope
from starlette.websockets import WebSocket, WebSocketDisconnect

from llmendpoint_server import limits
from llmendpoint_server.api.http_answer import WRITE_SOON
from llmendpoint_server.api.responses import DONE, encode_json, error_body
from llmendpoint_server.api.socket_bounds import AGAINST_THE_RULES
from llmendpoint_server.api.tasks import Handler
from llmendpoint_server.api.urgency import PRIORITY_HEADER

PATH = "/v1/stream"
FRAME_BYTES_MAX = limits.BODY_BYTES_MAX + 2**16
"""For a frame from a caller; the body in it has its own bound."""
IDLE_SECONDS = 600.0
"""Without a request the connection is closed after this time."""
OVER_SOCKET = "over_socket"
"""Set in the state of a request that came as a frame."""
PATH_CHARACTERS_MAX = 256
UNSENT_BYTES_MAX = 2**16
"""An answer waits while so much of it is not written yet."""
HEADERS = (limits.DEADLINE_HEADER.encode(), PRIORITY_HEADER.encode())
"""Those of the connection's request that hold for each request on it."""
NORMAL, NOT_TEXT, FAILED = 1000, 1003, 1011
"""Close codes of RFC 6455. A frame that is too large ends with 1009, the end of the server with 1012."""


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    path: Annotated[str, Meta(max_length=PATH_CHARACTERS_MAX)]
    body: msgspec.Raw


WRONG_FRAME = 'A frame must be {"path": …, "body": …}: the path of a POST route, such as /v1/chat/completions, and its body.'


class Exchange:
    """One request and its answer, as the HTTP application sees them."""

    def __init__(self, socket: WebSocket, frame: Frame) -> None:
        self._socket, self._frame = socket, frame
        self._body: bytes | None = bytes(frame.body)
        self._events = False
        self._parts: list[bytes] = []
        self._unsent: list[bytes] = []
        """events of a stream"""
        self._size = 0
        self._wake, self._written = asyncio.Event(), asyncio.Event()
        self._written.set()
        self.gone = False
        """the caller has left"""
        self.early = False
        """it has sent another frame meanwhile"""
        self.status = 0
        self.complete = False

    async def run(self) -> None:
        pump = asyncio.create_task(self._pump())
        try:
            await self._socket.app(self._scope(), self._receive, self._send)
            await self._written.wait()
        finally:
            pump.cancel()

    def _scope(self) -> Scope:
        given, path = self._socket.scope, self._frame.path
        return {
            "type": "http", "asgi": given["asgi"], "http_version": "1.1", "method": "POST", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
            "headers": [pair for pair in given["headers"] if pair[0] in HEADERS],
            "client": given["client"], "server": given["server"], "state": {WRITE_SOON: self._write_soon, OVER_SOCKET: True},
        }  # fmt: skip

    async def _receive(self) -> Message:
        """The body, and then, when the caller leaves or sends more, that it is gone."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if not self.early and not self.gone:
            self.early = (await self._socket.receive())["type"] == "websocket.receive"
            self.gone = not self.early
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._events = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            return
        body = message.get("body", b"")
        self.complete = not message.get("more_body", False)
        if self._events:
            self._write_soon(body)
            await self._written.wait()
        else:
            self._parts.append(body)
            if self.complete:
                await self._write(b"".join(self._parts).decode())

    def _write_soon(self, body: bytes) -> bool:
        """Returns whether the caller keeps up."""
        if body and not self.gone:
            self._unsent += body.split(b"\n\n")
            self._size += len(body)
            self._written.clear()
            self._wake.set()
        return self._size < UNSENT_BYTES_MAX

    async def _pump(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._unsent:
                unsent, self._unsent = self._unsent, []
                for event in unsent:
                    if data := data_of(event):
                        await self._write(data)
            self._size = 0
            self._written.set()

    async def _write(self, text: str) -> None:
        if not self.gone:
            try:
                await self._socket.send_text(text)
            except WebSocketDisconnect:
                self.gone = True


def data_of(event: bytes) -> str:
    """The data of a server-sent event; empty for the last one, which is not JSON."""
    lines = (line.removeprefix(b"data: ") for line in event.split(b"\n") if line.startswith(b"data: "))
    return "".join(line.decode() for line in lines if line != DONE[6:].strip())


def not_over_socket(handler: Handler) -> Handler:
    """For a route of who operates the server: a gateway passes frames to the server without a look at their paths."""

    async def handle(request: Request) -> Response:
        if request.scope.get("state", {}).get(OVER_SOCKET):
            raise HTTPException(404, "a WebSocket has no such path")
        return await handler(request)

    return handle


async def stream(socket: WebSocket) -> None:
    """Serve one connection."""
    if foreign(socket):
        await socket.close()  # before it was accepted: 403
        return
    await socket.accept()
    with contextlib.suppress(WebSocketDisconnect):
        while (closing := await _serve_one(socket)) is None:
            pass
        code, why = closing
        await socket.close(code, why)


def foreign(socket: WebSocket) -> bool:
    """Whether a page of another site asks. Browsers let any page open a WebSocket to any host."""
    origin, host = socket.headers.get("origin"), socket.headers.get("host")
    return origin is not None and urlsplit(origin).netloc != host


async def _serve_one(socket: WebSocket) -> tuple[int, str] | None:
    """One request; returns why the connection ends after it, if it does. Raises WebSocketDisconnect."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            message = await socket.receive()
    except TimeoutError:
        return NORMAL, f"No request came for {IDLE_SECONDS:g} s."
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", NORMAL))
    if (text := message.get("text")) is None:
        return NOT_TEXT, "A frame must be text: JSON."
    try:
        frame = msgspec.json.decode(text, type=Frame)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        error = error_body(WRONG_FRAME, "invalid_request_error")
        await socket.send_text(encode_json(error).decode())
        await socket.send_text(_done(400))
        return None
    del message, text
    exchange = Exchange(socket, frame)
    await exchange.run()
    if exchange.gone:
        raise WebSocketDisconnect
    if exchange.early:
        return AGAINST_THE_RULES, "One request at a time: wait for the frame with done."
    if not exchange.complete:
        return FAILED, "The engine ended; the answer is not whole."
    await socket.send_text(_done(exchange.status))
    return None


def _done(status: int) -> str:
    return encode_json({"done": True, "status": status}).decode()
