"""uvicorn's HTTP/1.1 protocol with bounds: on a request's head, and on how long a caller may leave an answer unread.

Differences from uvicorn's own:

- An `Upgrade` is ignored but for `/v1/stream`, as RFC 9110 allows, and its request is served with its body: the JDK's HttpClient asks for
  h2c with its first request. If an earlier request on the connection has no answer yet, the connection ends with that
  answer.
- A caller that has closed its sending half gets its answer.
- An answer to HTTP/1.0 without a length ends with the connection, instead of in chunks.
- The refusal of a request that cannot be read has OpenAI's shape.
- An application may write a part of an answer without waiting (WRITE_SOON).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import termios
from array import array
from typing import Any, cast

import httptools
import msgspec
import structlog
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from llmendpoint_server import limits
from llmendpoint_server.api import web_socket
from llmendpoint_server.api.http_answer import WRITE_SOON, Answer, DueWrites, UntilClosed

SOCKET_PATH = web_socket.PATH.encode()
"""The one path where an upgrade to a WebSocket is taken."""
WRITE_SECONDS_MAX = 30.0
"""Seconds. A connection is cut if its caller takes no byte of the waiting answer for this time."""
HALF_CLOSED_SECONDS = 0.5
"""Seconds within which an answer must begin after the caller has closed its sending half."""
UPGRADE_HEADERS = (b"upgrade", b"http2-settings")


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._due_writes = self.app_state.setdefault("due_writes", DueWrites())
        self._head_bytes = 0
        self._in_head = False
        self._upgrading = False
        self._ending = False
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._gone_timer: asyncio.TimerHandle | None = None

    # The head of a request

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def _await_head(self) -> None:
        self._head_timer = self.loop.call_later(limits.HEADER_SECONDS_MAX, self._head_is_late)

    def _head_is_late(self) -> None:
        if self._in_head:
            self._refuse(408, f"The request's headers did not arrive within {limits.HEADER_SECONDS_MAX:g} s.")
        else:  # nothing was asked, so there is no answer
            self.transport.close()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self._ending:  # the connection ends with the answer that is due
            return
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            rest = self._feed(rest)

    def _feed(self, data: memoryview) -> memoryview:
        """Parse it. Returns what is left to parse: all after the head of a request whose upgrade is ignored."""
        in_head_before = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
            if self._wants_socket():
                self._become_socket(bytes(rest))
            elif self._go_on_without_upgrade():
                return rest
        except httptools.HttpParserError:
            self._refuse(400, "This is not a valid HTTP/1.1 request.")
        else:
            if self._in_head and in_head_before:  # all of it belongs to this head, which has not ended yet
                self._head_bytes += len(data)
                self._check_head()
        return data[:0]

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # not in trailers after a body in chunks: those would have no bound
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_head_timer()
        if self.parser.should_upgrade():
            self._upgrading = True
            return
        self._head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if self._check_head():
            super().on_headers_complete()
            self.cycle.__class__ = UntilClosed if self.scope["http_version"] == "1.0" else Answer
            answer = cast(Answer, self.cycle)
            answer.due_writes = self._due_writes
            self.scope["state"][WRITE_SOON] = answer.write_soon

    def _check_head(self) -> bool:
        if self._head_bytes <= limits.HEADER_BYTES_MAX:
            return True
        self._refuse(
            431,
            f"The request line and headers have more than {limits.HEADER_BYTES_MAX} bytes together.",
        )
        return False

    def on_body(self, body: bytes) -> None:
        if not self._upgrading and not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._upgrading and not self.transport.is_closing():
            super().on_message_complete()

    def _wants_socket(self) -> bool:
        due = self.cycle is not None and not self.cycle.response_complete
        path, method = self.url.partition(b"?")[0], self.parser.get_method()
        return not due and method == b"GET" and path == SOCKET_PATH and self._should_upgrade()

    def _become_socket(self, rest: bytes) -> None:
        """From now on the connection is a WebSocket's. `rest`: what came after the head."""
        self._head_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if not self._check_head():
            return
        self._stop_head_timer()
        self.scope["method"] = "GET"
        self.handle_websocket_upgrade()
        if rest:
            cast(asyncio.Protocol, self.transport.get_protocol()).data_received(rest)

    def _go_on_without_upgrade(self) -> bool:
        """Read the head of the same request again, with a parser that does not see the upgrade. Returns whether its
        body may follow.

        Each one costs a parser. So no head is read again while an answer is due: a caller waits for it before it asks
        for more.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._ending, self.cycle.keep_alive = True, False
            return False
        self._upgrading = False
        method = self.parser.get_method()
        if method == b"CONNECT":
            self._refuse(405, "This server is no proxy: it does not take CONNECT.")
            return False
        dropped = (*UPGRADE_HEADERS, b"connection")
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (method, self.url, version)]
        lines += [b"%s: %s" % pair for pair in self.headers if pair[0] not in dropped]
        self.parser = httptools.HttpRequestParser(self)
        try:
            self.parser.feed_data(b"\r\n".join(lines) + b"\r\n\r\n")
        except httptools.HttpParserError:
            self._refuse(400, "This is not a valid HTTP/1.1 request.")
            return False
        return True

    def _refuse(self, status: int, message: str) -> None:
        """Answer before there is a request, and close the connection."""
        self._stop_head_timer()
        if self.transport.is_closing():
            return
        structlog.get_logger().info("request refused", status=status, why=message)
        if self.cycle is None or self.cycle.response_complete:  # never into the middle of another answer
            error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
            body = msgspec.json.encode({"error": error})
            self.transport.write(
                STATUS_LINE[status]
                + b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                % len(body)
                + body
            )
        self.transport.close()

    # The answer

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio has it
        """Keep the connection if an answer is due: the caller may have closed only its sending half.

        The first bytes that are sent show whether the caller is gone altogether. If none are sent within
        HALF_CLOSED_SECONDS, it counts as gone.
        """
        if self.cycle is None or self.cycle.response_complete:
            return False
        self.cycle.keep_alive = False
        if not self.cycle.response_started:
            self._gone_timer = self.loop.call_later(HALF_CLOSED_SECONDS, self._close_unless_answered)
        return True

    def _close_unless_answered(self) -> None:
        if not self.cycle.response_started:
            self.transport.close()

    def pause_writing(self) -> None:
        """The caller reads slower than the answer is made: check that it reads at all."""
        super().pause_writing()
        self._await_reader(self._unread())

    def _unread(self) -> int:
        """Bytes that the caller's side has not taken yet, in this process and in the kernel.

        The kernel takes more only when a third of its buffer is free. So this process's part alone would not change for
        a long time while a slow caller reads.
        """
        queued = array("i", [0])
        with contextlib.suppress(OSError):
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + queued[0]

    def _await_reader(self, unread: int) -> None:
        self._write_timer = self.loop.call_later(WRITE_SECONDS_MAX, self._check_reader, unread)

    def _check_reader(self, before: int) -> None:
        unread = self._unread()
        if unread < before:
            self._await_reader(unread)
            return
        structlog.get_logger().info("a caller does not read: the connection is cut", unread_bytes=unread)
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_write_timer()
        if self._gone_timer is not None:
            self._gone_timer.cancel()
        super().connection_lost(exc)
