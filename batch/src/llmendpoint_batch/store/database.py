"""The database for the event loop: each call runs on a thread, writes and reads each in the order of the calls."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Concatenate, ParamSpec, TypeVar

from llmendpoint_batch.errors import InUse
from llmendpoint_batch.store.connection import Backend, Connection

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """`taken`: another process has the database, so that this one must end."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._writing = ThreadPoolExecutor(1, "writer")
        self._reading = ThreadPoolExecutor(1, "reader")
        self.taken = asyncio.Event()

    @property
    def away(self) -> str:
        """Why the database cannot be reached now; empty if it can be."""
        return self._backend.away

    async def write(self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        """A call whose waiter is cancelled is still done."""
        job = self._writing.submit(self._backend.write, lambda c: do(c, *args, **named))
        try:
            return await asyncio.shield(asyncio.wrap_future(job))
        except InUse:
            self.taken.set()
            raise

    async def read(self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs) -> T:
        job = self._reading.submit(self._backend.read, lambda c: do(c, *args, **named))
        return await asyncio.wrap_future(job)

    async def read_long(
        self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        return await asyncio.to_thread(self._backend.read_long, lambda c: do(c, *args, **named))

    def close(self) -> None:
        self._writing.shutdown()
        self._reading.shutdown()
        self._backend.close()
