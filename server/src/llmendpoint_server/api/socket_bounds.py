"""What a caller of `/v1/stream` may send, and how fast, before a request is made of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from typing import Any

from uvicorn.protocols.websockets.wsproto_impl import WSProtocol
from wsproto import ConnectionType, WSConnection, events

from llmendpoint_server import limits
from llmendpoint_server.api.body import LARGE_AT_ONCE, LARGE_BYTES

SMALL_BYTES, SMALL_FRAMES_MAX = 1024, 2_000
"""A frame below the first is small. So many of them are read in a second: each takes some 10 µs, and may have two bytes."""
AGAINST_THE_RULES, TRY_AGAIN = 1008, 1013
"""Close codes of RFC 6455, and of its registry."""


class TooManyFrames(Exception):
    """A second brought more small frames than SMALL_FRAMES_MAX."""


class BoundedFrames(WSConnection):
    """Raises TooManyFrames from `events`. Pings and pieces of messages may be empty, so no bound of bytes holds for them."""

    def __init__(self) -> None:
        super().__init__(ConnectionType.SERVER)
        self._since, self._small = 0.0, 0

    def events(self) -> Generator[events.Event, None, None]:
        for event in super().events():
            if _is_small(event):
                self._count()
            yield event

    def _count(self) -> None:
        now = time.monotonic()
        if now - self._since > 1:
            self._since, self._small = now, 0
        self._small += 1
        if self._small > SMALL_FRAMES_MAX:
            raise TooManyFrames


def _is_small(event: events.Event) -> bool:
    match event:
        case (
            events.Message(data=content, frame_finished=True)
            | events.Ping(payload=content)
            | events.Pong(payload=content)
        ):
            return len(content) < SMALL_BYTES
    return False  # a part of a frame that is still on its way was read from the network by itself


class LargeFrames:
    """Those of all connections that are on their way, or not yet in the hands of who reads bodies."""

    def __init__(self) -> None:
        self.count = 0


class BoundedSocket(WSProtocol):
    """A connection whose caller does not answer a ping is cut: it reads nothing, so no more could be written. A message that arrives has
    the bounds of a body: its time, and how many large ones there may be at once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = BoundedFrames()
        self._large: LargeFrames = self.app_state.setdefault("large_frames", LargeFrames())
        self._size, self._is_large = 0, False
        self._late: asyncio.TimerHandle | None = None

    def handle_message(self, event: events.TextMessage | events.BytesMessage) -> None:
        if self._late is None and not event.message_finished:
            self._late = self.loop.call_later(limits.BODY_SECONDS_MAX, self._is_late)
        self._size += len(event.data)
        if self._size > LARGE_BYTES and not self._is_large and not self._take_place():
            return
        super().handle_message(event)
        if event.message_finished:
            self._arrived()

    def _take_place(self) -> bool:
        if self._large.count >= LARGE_AT_ONCE:
            told = f"{LARGE_AT_ONCE} frames over {LARGE_BYTES} bytes are arriving already."
            self._refuse(f"{told} Try again.", TRY_AGAIN)
            return False
        self._large.count += 1
        self._is_large = True
        if self._late is not None:
            self._late.cancel()
        self._late = self.loop.call_later(limits.LARGE_BODY_SECONDS_MAX, self._is_late)
        return True

    def _is_late(self) -> None:
        self._refuse(
            f"A frame did not arrive in time: {limits.BODY_SECONDS_MAX:g} s for all of it, and {limits.LARGE_BODY_SECONDS_MAX:g} s "
            "for the part above 1 MiB."
        )

    def _arrived(self) -> None:
        self._size = 0
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _give_back(self) -> None:
        if self._is_large:
            self._is_large = False
            self._large.count -= 1

    async def receive(self) -> Any:
        self._give_back()  # who asks for more has read the one before
        return await super().receive()

    def connection_lost(self, exc: Exception | None) -> None:
        self._arrived()
        self._give_back()
        self.buffer.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except TooManyFrames:
            self._refuse(
                f"At most {SMALL_FRAMES_MAX} frames below {SMALL_BYTES} bytes are taken in a second."
            )

    def _refuse(self, why: str, code: int = AGAINST_THE_RULES) -> None:
        if self.close_sent:
            return
        self.close_sent = True
        self.buffer.clear()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
        if not self.transport.is_closing():
            self.transport.write(self.conn.send(events.CloseConnection(code=code, reason=why)))
            if self.transport.get_write_buffer_size():  # it does not read, so it would never close
                self.transport.abort()
            self.transport.close()

    def handle_ping(self, event: events.Ping) -> None:
        if self.writable.is_set():  # otherwise what it does not read would only grow
            super().handle_ping(event)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()
