"""Answers whose parts are written without a task for each, together for all callers of one turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

WriteSoon = Callable[[bytes], bool]
WRITE_SOON = "write_soon"
"""Where a request's state has its WriteSoon."""


class DueWrites:
    """What the answers of one server write when this turn of the event loop has ended. One entry of the loop's queue for
    all of them: one for each would cost as much as the text of its tokens."""

    def __init__(self) -> None:
        self._answers: list[Answer] = []

    def add(self, answer: Answer) -> None:
        if not self._answers:
            asyncio.get_running_loop().call_soon(self._write)
        self._answers.append(answer)

    def _write(self) -> None:
        answers, self._answers = self._answers, []
        for answer in answers:
            answer.write()


class Answer(RequestResponseCycle):
    """An answer whose parts may be written without a task and without the `send` of each middleware, which together cost
    several times as much as a token's own work."""

    due_writes: DueWrites
    unwritten: bytes = b""

    def write_soon(self, body: bytes) -> bool:
        """Write a part of the body when this turn of the event loop has ended, after all of the turn's other work: the
        system calls of many callers are faster one after another. To be called after the start of the answer.

        Returns whether the caller keeps up. If not, the next `send` waits until the caller has read.
        """
        if self.disconnected:
            return False
        if not self.unwritten:
            self.due_writes.add(self)
        self.unwritten += b"%x\r\n%b\r\n" % (len(body), body) if self.chunked_encoding else body
        return not self.flow.write_paused

    def write(self) -> None:
        if self.unwritten and not self.transport.is_closing():
            self.transport.write(self.unwritten)
        self.unwritten = b""

    async def send(self, message: Any) -> None:
        self.write()
        await super().send(message)


class UntilClosed(Answer):
    """An answer to HTTP/1.0, which has no chunks: without a length it ends with the connection."""

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            if not any(name.lower() == b"content-length" for name, _ in message.get("headers", ())):
                self.chunked_encoding = False
        elif self.chunked_encoding is False and self.expected_content_length == 0:
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)
