"""Questions to the engine process about adapters, and its answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from llmendpoint_server import protocol
from llmendpoint_server.errors import Unavailable


class AdapterCalls:
    """`send` brings a message to the engine process. All methods are for the event loop's thread."""

    def __init__(self, send: Callable[[protocol.ToEngine], None]) -> None:
        self._send = send
        self._open: dict[int, asyncio.Future[protocol.AdapterChanged]] = {}
        self._number = 0
        self._ended: str | None = None

    async def load(self, name: str, folder: str) -> protocol.AdapterChanged:
        return await self._ask(protocol.LoadAdapter(self._next(), name, folder))

    async def unload(self, name: str) -> protocol.AdapterChanged:
        return await self._ask(protocol.UnloadAdapter(self._next(), name))

    def take(self, answer: protocol.AdapterChanged) -> None:
        call = self._open.pop(answer.call, None)
        if call is not None and not call.done():
            call.set_result(answer)

    def fail(self, why: str) -> None:
        """The engine answers none of them any more."""
        self._ended = why
        calls, self._open = self._open, {}
        for call in calls.values():
            if not call.done():
                call.set_exception(Unavailable(why))

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def _ask(self, question: protocol.LoadAdapter | protocol.UnloadAdapter) -> protocol.AdapterChanged:
        if self._ended is not None:
            raise Unavailable(self._ended)
        answer: asyncio.Future[protocol.AdapterChanged] = asyncio.get_running_loop().create_future()
        self._open[question.call] = answer
        self._send(question)
        return await answer
