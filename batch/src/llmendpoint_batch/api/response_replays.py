"""The stream of a background response: its kept events from any number on, and those to come until its end.

A caller who leaves changes nothing; who comes again names the last number that it has seen.
"""

import asyncio
import time

from aiohttp import web

from llmendpoint_batch.api.rooms import Room
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.errors import Refused, StorageFailed
from llmendpoint_batch.store import response_replay
from llmendpoint_batch.store.response_replay import Piece

LOOK_SECONDS = 1.0
"""How often it is looked whether the caller is still there."""
SILENT_SECONDS = 15.0
"""Then a comment is sent, so that no proxy takes a response that waits for a dead connection."""
PIECE_BYTES = 64 << 10
HEADERS = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class Replay:
    def __init__(self, service: Service, room: Room) -> None:
        self._service, self._room = service, room

    async def send(self, request: web.Request, response_id: str, after: int) -> web.StreamResponse:
        """`after`: the number of the last event that the caller has; -1: none. Raises Refused."""
        await self._service.database.read(response_replay.check, response_id, after)
        answer = web.StreamResponse(headers=HEADERS)
        await answer.prepare(request)
        try:
            await self._follow(request, answer, response_id, after)
        except (Refused, StorageFailed):  # deleted, or no room: the caller asks again, and is told
            if request.transport is not None:
                request.transport.abort()
        except ConnectionError:
            pass  # the caller has left
        return answer

    async def _follow(
        self, request: web.Request, answer: web.StreamResponse, response_id: str, after: int
    ) -> None:
        spoke = time.monotonic()
        async with self._service.background.events.following(response_id) as changed:
            while request.transport is not None and not request.transport.is_closing():
                changed.clear()
                piece = await self._service.database.read(response_replay.piece_after, response_id, after)
                if piece.data:
                    await self._write(answer, piece)
                    after, spoke = piece.last, time.monotonic()
                if piece.ended:
                    await answer.write_eof()
                    return
                if piece.data:
                    continue
                if time.monotonic() - spoke > SILENT_SECONDS:
                    await answer.write(b": it goes on\n\n")
                    spoke = time.monotonic()
                try:
                    await asyncio.wait_for(changed.wait(), LOOK_SECONDS)
                except TimeoutError:
                    pass

    async def _write(self, answer: web.StreamResponse, piece: Piece) -> None:
        """What is not read yet is counted: it stays in memory."""
        with self._room.holding() as held:
            held.more(len(piece.data))
            view = memoryview(piece.data)
            for at in range(0, len(view), PIECE_BYTES):
                await answer.write(view[at : at + PIECE_BYTES])
