"""Reads a request's body. It is bounded in bytes, values and time while it arrives, before any object is built from it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.requests import Request

from llmendpoint_server import limits
from llmendpoint_server.errors import BodyTimeout, BodyTooLarge, InvalidRequest, Unavailable

SMALL_BYTES = 2**16
"""A body up to this size has too few values to count them."""
LARGE_BYTES = 2**20
LARGE_AT_ONCE = 4
"""How many bodies over LARGE_BYTES are read and judged at the same time."""
PLACE_WAIT_S = 10.0
PIECE_BYTES = 2**16
"""How much is counted in one go: about a millisecond."""


class ValueCounter:
    """Counts fields and list items of a JSON text as it arrives. Pure; a text that is not JSON gets some number too.

    Building a Python object for each value takes 10 to 100 times the memory of the text, and blocks the whole process.
    Commas and brackets outside of strings are counted at the speed of a copy.
    """

    def __init__(self) -> None:
        self.values = 0
        self._in_string = False
        self._escape = b""

    def feed(self, piece: bytes | bytearray) -> None:
        # Without escapes each quote opens or closes a string. A piece may end inside of an escape.
        plain = (self._escape + piece).replace(b"\\\\", b"")
        self._escape = b"\\" if plain.endswith(b"\\") else b""
        plain = plain.removesuffix(b"\\").replace(b'\\"', b"")
        parts = plain.split(b'"')
        outside = b"".join(parts[self._in_string :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")


_SURROGATE = re.compile(rb"\\u[dD][89abAB]")
_SURROGATE_BYTES = 4
_NOT_FOUR_BYTES = bytes(range(0xF0))
_CONTINUATION = bytes(range(0x80, 0xC0))


class WideText:
    """Whether a JSON text holds a character outside the Basic Multilingual Plane, and how many characters it has at
    most, as it arrives. Pure. Python stores each character of a string in as many bytes as the widest one needs."""

    def __init__(self) -> None:
        self.characters = 0
        self.found = False
        self._tail = b""

    def feed(self, piece: bytes | bytearray) -> None:
        self.characters += len(piece.translate(None, _CONTINUATION))
        self.characters -= 5 * piece.replace(b"\\\\", b"").count(b"\\u")
        if not self.found:
            together = self._tail + piece
            self.found = bool(piece.translate(None, _NOT_FOUR_BYTES) or _SURROGATE.search(together))
            self._tail = bytes(together[-_SURROGATE_BYTES:])


class LargeBodies:
    """Places for bodies over LARGE_BYTES: at most LARGE_AT_ONCE are read and judged at the same time."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(LARGE_AT_ONCE)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Raises Unavailable if no place becomes free in time."""
        try:
            async with asyncio.timeout(PLACE_WAIT_S):
                await self._places.acquire()
        except TimeoutError:
            raise Unavailable(
                f"{LARGE_AT_ONCE} bodies over {LARGE_BYTES} bytes are being read already. Try again.",
                retry_after=1.0,
            ) from None
        try:
            yield
        finally:
            self._places.release()


class BodyReader:
    """Reads one body. `held` keeps the place of a large body until the caller has made a prompt from it."""

    def __init__(
        self, large: LargeBodies, held: AsyncExitStack, max_model_len: int, most_values: int
    ) -> None:
        self._large, self._held = large, held
        self._most_bytes, self._most_values = limits.body_bytes(max_model_len), most_values
        self._most_wide = limits.wide_characters(max_model_len)
        self._body = bytearray()
        self._counter, self._wide, self._counted = ValueCounter(), WideText(), 0

    async def read(self, request: Request) -> bytearray:
        """The whole body. Raises BodyTooLarge, InvalidRequest, BodyTimeout or Unavailable as soon as that is known."""
        declared = request.headers.get("content-length", "0")
        if declared.isdecimal() and (len(declared) > 18 or int(declared) > self._most_bytes):
            raise self._too_large(f"{declared[:18]} bytes")
        try:
            async with asyncio.timeout(limits.BODY_SECONDS_MAX) as deadline:
                async for part in request.stream():
                    await self._take(part, deadline)
        except TimeoutError:
            raise BodyTimeout(
                f"The request's body did not arrive in time: {limits.BODY_SECONDS_MAX:g} s for all of it, and "
                f"{limits.LARGE_BODY_SECONDS_MAX:g} s for the part above {LARGE_BYTES} bytes; {len(self._body)} bytes arrived."
            ) from None
        return self._body

    async def _take(self, part: bytes, deadline: asyncio.Timeout) -> None:
        before = len(self._body)
        self._body += part
        if len(self._body) > self._most_bytes:
            raise self._too_large("more bytes")
        if before <= LARGE_BYTES < len(self._body):
            await self._held.enter_async_context(self._large.place())
            late = asyncio.get_running_loop().time() + limits.LARGE_BODY_SECONDS_MAX
            deadline.reschedule(min(late, deadline.when() or late))
        while len(self._body) > SMALL_BYTES and self._counted < len(self._body):
            piece = self._body[self._counted : self._counted + PIECE_BYTES]
            self._counted += len(piece)
            self._counter.feed(piece)
            self._wide.feed(piece)
            if self._wide.found and self._wide.characters > self._most_wide:
                raise BodyTooLarge(
                    "The request's body has a character outside the Basic Multilingual Plane; with such a character this "
                    f"server takes at most {self._most_wide} characters for this model."
                )
            if self._counter.values > self._most_values:
                raise InvalidRequest(
                    f"The request's body holds more than {self._most_values} JSON values (fields and list items), the "
                    "most that this server takes for this model: send fewer messages, parts or token ids."
                )

    def _too_large(self, size: str) -> BodyTooLarge:
        return BodyTooLarge(
            f"The request's body has {size}; for this model this server takes at most {self._most_bytes} bytes."
        )
