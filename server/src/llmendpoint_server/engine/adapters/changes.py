"""Loads adapters and lets them go while steps go on: a thread reads and checks, and what is copied to the device between two
steps has a bound.

The thread has the priority of the others. With a lower one, a busy machine would stop it while it holds Python's lock, and with it
the steps.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import structlog

from llmendpoint_server.core.adapters import Places, PlacesFull
from llmendpoint_server.core.scheduler import Scheduler
from llmendpoint_server.engine.adapters.files import Unfit
from llmendpoint_server.engine.adapters.stack import Piece, Stack
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.protocol import AdapterChanged, LoadAdapter, UnloadAdapter

COPIED_AT_ONCE = 4 * 2**20
"""Bytes that are copied between two steps, or one layer's if that is more."""

InThread = Callable[[Callable[[], list[Piece]]], "Future[list[Piece]]"]


def in_thread(work: Callable[[], list[Piece]]) -> Future[list[Piece]]:
    done: Future[list[Piece]] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # any: it is raised where the result is asked for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="adapter").start()
    return done


@dataclass(slots=True)
class _Load:
    asked: LoadAdapter
    place: int
    read: Future[list[Piece]]
    filling: Iterator[None] | None = None


class Changes:
    """One load at a time, in the order in which they were asked for. `run`: brings work to a thread."""

    def __init__(self, stack: Stack, scheduler: Scheduler, run: InThread = in_thread) -> None:
        self._stack, self._scheduler, self._run = stack, scheduler, run
        self._asked: deque[LoadAdapter] = deque()
        self._load: _Load | None = None

    def __bool__(self) -> bool:
        """Whether there is something to do between two steps."""
        return self._load is not None or bool(self._asked)

    def ask(self, change: LoadAdapter | UnloadAdapter) -> list[AdapterChanged]:
        if isinstance(change, LoadAdapter):
            self._asked.append(change)
            return []
        if self._places.unload(change.name):
            return [AdapterChanged(change.call)]
        return [AdapterChanged(change.call, "unknown", f"There is no adapter {change.name!r}.")]

    def advance(self) -> list[AdapterChanged]:
        """What may be done between two steps. Returns the loads that have ended."""
        if self._load is None and self._asked:
            return self._begin(self._asked.popleft())
        load = self._load
        if load is None or not load.read.done():
            return []
        try:
            if load.filling is None:
                load.filling = self._stack.fill(load.place, load.read.result(), COPIED_AT_ONCE)
            next(load.filling)
            return []
        except StopIteration:
            self._load = None
            placed = self._places.finish(load.place)
            return [AdapterChanged(load.asked.call, generation=placed.generation)]
        except Unfit as error:
            return self._fail(load, f"{load.asked.path}: {error}.")
        except Exception as error:  # any: of a file, or of too little memory; this load fails alone
            structlog.get_logger().error(
                "an adapter cannot be loaded", path=load.asked.path, error=repr(error)
            )
            return self._fail(load, f"{load.asked.path} cannot be loaded: {type(error).__name__}.")

    @property
    def _places(self) -> Places:
        return self._scheduler.adapters

    def _begin(self, asked: LoadAdapter) -> list[AdapterChanged]:
        self._scheduler.free_places()
        try:
            place = self._places.begin(asked.name)
        except PlacesFull as error:
            return [AdapterChanged(asked.call, "full", f"There is no place for {asked.name!r}: {error}.")]
        self._load = _Load(asked, place, self._run(lambda: self._stack.read(Path(asked.path))))
        return []

    def _fail(self, load: _Load, detail: str) -> list[AdapterChanged]:
        self._load = None
        self._places.give_up(load.place)
        return [AdapterChanged(load.asked.call, "unfit", detail)]


def load_at_start(stack: Stack, places: Places, adapters: Sequence[tuple[str, str]]) -> None:
    """Name and folder of each. Raises BadConfiguration."""
    for name, folder in adapters:
        try:
            pieces = stack.read(Path(folder))
        except Unfit as error:
            raise BadConfiguration(f"--lora-modules {name}={folder}: {error}.") from error
        place = places.begin(name)
        for _ in stack.fill(place, pieces, COPIED_AT_ONCE):
            pass
        places.finish(place)
