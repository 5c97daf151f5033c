"""Reads bodies, and does the work on them without holding up the event loop; one for all routes of a server.

Small bodies are worked on in the event loop, the others in a few threads. Tokenizing releases Python's lock, and the
rest is bounded (see `body` and `limits`), so that no body blocks the event loop for long.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from typing import Any, TypeVar

from starlette.requests import Request

from llmendpoint_server.api.body import LARGE_BYTES, BodyReader, LargeBodies
from llmendpoint_server.api.disconnect import unless_gone
from llmendpoint_server.errors import QueueFull
from llmendpoint_server.resources import usable_threads

INLINE_BYTES = 2**14
"""A body up to this size takes about 5 ms at worst."""
THREADS_MAX = 4
WAITING_MAX = 64
"""Bodies that wait for a thread; one more is refused with 429."""

T = TypeVar("T")


class Cancelled(Exception):
    """The caller is gone, so this work is not needed any more."""


Work = Callable[[bytearray, float, threading.Event], T]
"""Gets the body, when it was whole (monotonic seconds), and an event that is set once the caller is gone."""


class OffLoop:
    """Raises QueueFull if too much work waits for a thread."""

    def __init__(self) -> None:
        self._large = LargeBodies()
        threads = min(THREADS_MAX, usable_threads())
        self._pool = ThreadPoolExecutor(threads, "preprocess")
        self._free = asyncio.Semaphore(threads)
        self._waiting = 0
        self._parsing = threading.Lock()

    def parsing(self, body: bytearray) -> AbstractContextManager[object]:
        """To be held while a body is decoded. A large one is decoded in one call that holds Python's lock. One at a time, so
        that all else runs between two of them."""
        return self._parsing if len(body) > LARGE_BYTES else nullcontext()

    async def read(self, request: Request, max_model_len: int, most_values: int, work: Work[T]) -> T:
        """Read a body, and give it to `work`. Raises RequestError, or ClientGone."""
        async with AsyncExitStack() as held:
            reader = BodyReader(self._large, held, max_model_len, most_values)
            body = await reader.read(request)
            arrived = time.monotonic()
            if len(body) <= INLINE_BYTES:
                return work(body, arrived, threading.Event())
            return await unless_gone(
                request.receive, self.run(lambda cancelled: work(body, arrived, cancelled))
            )

    async def run(self, work: Callable[[threading.Event], T]) -> T:
        """The result of `work` in a thread. Its event is set when this call is cancelled."""
        if self._waiting >= WAITING_MAX:
            raise QueueFull(
                f"{self._waiting} prompts wait to be tokenized already. Try again after the seconds in Retry-After.",
                retry_after=1.0,
            )
        self._waiting += 1
        try:
            await self._free.acquire()
        finally:
            self._waiting -= 1
        cancelled = threading.Event()
        task = asyncio.get_running_loop().run_in_executor(self._pool, work, cancelled)
        task.add_done_callback(self._free_thread)
        try:
            return await asyncio.shield(task)  # a thread cannot be cancelled, only asked to stop
        finally:
            cancelled.set()

    def _free_thread(self, task: asyncio.Future[Any]) -> None:
        self._free.release()
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as unseen
