"""Rank 0's side: it starts the other ranks, tells them each step, and ends the engine when one of them ends."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
import torch

from llmendpoint_server import logs
from llmendpoint_server.core.batch import Batch
from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.attention.choice import MakeBackend
from llmendpoint_server.engine.parallel import group as groups
from llmendpoint_server.engine.parallel.group import Group
from llmendpoint_server.engine.parallel.messages import (
    ALIKE_SECONDS,
    COUNT,
    PAGES,
    ROOM,
    Failed,
    Join,
    Kind,
    Line,
    StepWriter,
)
from llmendpoint_server.errors import LoadError
from llmendpoint_server.protocol import Configure

COMMAND = (sys.executable, "-m", "llmendpoint_server.engine.parallel")
LAST_WORDS_SECONDS = 5.0
"""After a rank has ended, rank 0 has so long to say so and end. It may hang in a collective of NCCL."""
NOTICE_SECONDS = 2.0
"""A collective that fails is mostly the first sign of a rank that ends: so long its end is awaited, to tell the cause."""


class RankEnded(RuntimeError):
    """Another rank has ended, or has not taken part in a step. The ranks cannot go on."""


class RankFailed(LoadError):
    """Another rank could not load its part. It has that rank's cause and exit code."""

    def __init__(self, cause: str, exit_code: int) -> None:
        super().__init__(cause)
        self.exit_code = exit_code  # type: ignore[misc]  # one for each error, and not for the class


class Worker:
    """Another rank's process. `code`: its exit code, once it has ended."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*COMMAND, "--socket-fd", str(theirs.fileno()), "--rank", str(rank)],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self.line = Line(ours)
        self.code: int | None = None
        self.failed: Failed | None = None
        self.ended = threading.Event()
        self.raised: queue.SimpleQueue[int] = queue.SimpleQueue()
        """after how many collectives a step raised there"""

    def watch(self, size: int) -> None:
        """Wait for its end, and end this process if nobody else does."""
        try:
            while (frame := self.line.receive())[0] is Kind.RAISED:
                self.raised.put(COUNT.unpack(frame[1])[0])
            kind, body = frame
            self.failed = msgspec.msgpack.decode(body, type=Failed) if kind is Kind.FAILED else None
        except EOFError:
            pass
        self.code = self.process.wait()
        self.ended.set()
        time.sleep(LAST_WORDS_SECONDS)
        logs.log_fatal(self.cause(size), 1)
        os._exit(1)

    def cause(self, size: int) -> str:
        why = f": {self.failed.cause}" if self.failed else ""
        return f"Rank {self.rank} of {size}, a process of this engine, ended with exit code {self.code}{why}"


class Ranks:
    """The other ranks, all of them started. Raises RankEnded where they cannot go on."""

    def __init__(self, group: Group, workers: list[Worker]) -> None:
        self.group = group
        self._workers = workers
        self._steps = StepWriter()

    def check(self) -> None:
        for worker in self._workers:
            if worker.ended.is_set():
                raise RankEnded(worker.cause(self.group.size))

    def leading(self, make: MakeBackend) -> MakeBackend:
        """Backends that the other ranks have, too: the last one that was made."""

        def made(pages: int) -> Backend:
            backend = make(pages)
            self._steps.forget()
            self._tell(Kind.PAGES, PAGES.pack(pages, backend.cache.page_size))
            return backend

        return made

    def reserve(self, backend: Backend, rows: int, tokens: int, longest: int) -> None:
        """Make room for the largest steps here and on the other ranks. CUDA kernels are compiled for the width of the tables: a width that
        comes later would hold all requests up."""
        backend.reserve(rows, tokens, longest)
        self._tell(Kind.ROOM, ROOM.pack(rows, tokens, longest))

    def together(self, batch: Batch, compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Compute a step while the others do. A row of bad state raises before they know of it. Raises what the step raises if it
        raised on all ranks after as many collectives; else they are no longer in step, and it raises RankEnded."""
        body = self._steps.write(batch)
        self._tell(Kind.STEP, body)
        self.group.begun.collectives = 0
        try:
            return compute()
        except Exception as error:  # any: the others are in the middle of the step
            if isinstance(error, torch.AcceleratorError) or not self._raised_alike():
                raise self.explained(error) from error
            self._tell(Kind.GO_ON)
            raise

    def _raised_alike(self) -> bool:
        end = time.monotonic() + ALIKE_SECONDS
        return all(self._raised_on(worker, end) == self.group.begun.collectives for worker in self._workers)

    def _raised_on(self, worker: Worker, end: float) -> int | None:
        """After how many collectives; None: it did not raise, or has ended."""
        while time.monotonic() < end and not worker.ended.is_set():
            with contextlib.suppress(queue.Empty):
                return worker.raised.get(timeout=0.05)
        return None

    def least(self, number: int) -> int:
        """The smallest of all ranks' free memory; `number`: this one's, in bytes."""
        self._tell(Kind.LEAST)
        try:
            return self.group.least(number)
        except RuntimeError as error:
            raise self.explained(error) from error

    def explained(self, error: Exception) -> Exception:
        """Why a collective failed: the end of a rank, if there is one. While loading it is that rank's own error."""
        if isinstance(error, LoadError | RankEnded):
            return error
        end = time.monotonic() + NOTICE_SECONDS
        while time.monotonic() < end and not any(worker.ended.is_set() for worker in self._workers):
            time.sleep(0.01)
        for worker in self._workers:
            if worker.ended.is_set():
                return RankEnded(worker.cause(self.group.size))
        return RankEnded(
            f"A step failed that {self.group.size} ranks compute together: {type(error).__name__}: {error}"
        )

    def failure(self, error: Exception) -> Exception:
        """As `explained`, while the model is loaded: what a rank said of its own failure counts more than what followed here."""
        if isinstance(error, LoadError):
            return error
        found = self.explained(error)
        for worker in self._workers:
            if worker.failed is not None:
                return RankFailed(worker.failed.cause, worker.failed.exit_code)
        return found if any(worker.ended.is_set() for worker in self._workers) else error

    def _tell(self, kind: Kind, body: bytes = b"") -> None:
        self.check()
        try:
            for worker in self._workers:
                worker.line.send(kind, body)
        except EOFError as error:
            raise self.explained(RuntimeError("its socket is closed")) from error


def start(settings: Configure, device: torch.device) -> Ranks:
    """Start the other ranks, and wait until all of them have joined. Raises RankEnded."""
    size = settings.tensor_parallel_size
    groups.check_devices(size, device)
    store = groups.open_store(size)
    workers = [Worker(rank) for rank in range(1, size)]
    for worker in workers:
        with contextlib.suppress(EOFError):  # it has ended, which is told below
            worker.line.send(Kind.JOIN, msgspec.msgpack.encode(Join(settings, worker.rank, store.port)))
    for worker in workers:
        _await(worker, size)
        threading.Thread(
            target=worker.watch, args=(size,), daemon=True, name=f"rank-{worker.rank}-watch"
        ).start()
    structlog.get_logger().info("ranks", size=size, pids=[worker.process.pid for worker in workers])
    return Ranks(groups.join(0, size, device, store, store.port), workers)


def _await(worker: Worker, size: int) -> None:
    """Until it can reach the others."""
    try:
        kind, body = worker.line.receive()
    except EOFError:
        worker.code = worker.process.wait()
        raise RankEnded(worker.cause(size)) from None
    if kind is Kind.FAILED:
        failed: Any = msgspec.msgpack.decode(body, type=Failed)
        raise RankFailed(failed.cause, failed.exit_code)
