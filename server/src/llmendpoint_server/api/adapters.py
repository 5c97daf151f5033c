"""The LoRA adapters that this server answers for: their names, where they came from, and how they change.

The engine has the weights. A name is known from when the engine says that its weights are in place until it is to be let
go.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import structlog

from llmendpoint_server.api.interfaces import Engine
from llmendpoint_server.errors import (
    AccessDenied,
    AdapterNotFound,
    AdaptersFull,
    AdapterUnfit,
    BadConfiguration,
    LoadError,
    ModelNotFound,
    ModelUnavailable,
    QueueFull,
    RequestError,
    Unavailable,
)
from llmendpoint_server.limits import ADAPTER_CHANGES_WAITING_MAX
from llmendpoint_server.protocol import AdapterChanged
from llmendpoint_server.settings import Settings

T = TypeVar("T")
Find = Callable[[str], Path]
"""The folder that a source means, downloaded if need be; may take long. Raises LoadError."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """`source`: as it was given. `created`: Unix seconds. `generation`: the number of the load."""

    name: str
    source: str
    created: int
    generation: int = 0


class Adapters:
    """At most `most`, beside a model that has the names `served`. All methods are for the event loop's thread, `of` is for any."""

    def __init__(
        self,
        engine: Engine,
        served: tuple[str, ...],
        most: int,
        find: Find,
        at_start: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.most, self.served = most, served
        self._engine, self._find = engine, find
        self._known: dict[str, Adapter] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._at_start = [
            Adapter(name, source, int(time.time()), number)
            for number, (name, source) in enumerate(at_start, start=1)
        ]

    @property
    def known(self) -> dict[str, Adapter]:
        """Those that requests may name. Those of the command line are there as soon as the engine is loaded."""
        if self._at_start and self._engine.loaded is not None:
            started, self._at_start = self._at_start, []  # first: it may be asked in two threads
            self._known.update({one.name: one for one in started})
        return self._known

    def of(self, model: str) -> Adapter | None:
        """The adapter that a request means by this name: its own, or `<a name of the model>:<its own>`."""
        known = self.known
        if (found := known.get(model)) is not None:
            return found
        base, _, name = model.rpartition(":")
        return known.get(name) if base in self.served else None

    async def load(self, name: str, source: str) -> Adapter:
        """Load it, or say that it is there already. In place of another one of this name, whose requests go on with what they
        began with. Raises RequestError."""
        return await self._to_the_end(self._load(name, source))

    async def unload(self, name: str) -> Adapter:
        """Take no more requests for it. Raises RequestError."""
        return await self._to_the_end(self._unload(name))

    async def _to_the_end(self, change: Coroutine[Any, Any, Adapter]) -> Adapter:
        """A change goes on though its caller is gone, so that this side knows what the engine has."""
        if self._waiting >= ADAPTER_CHANGES_WAITING_MAX:
            change.close()
            raise QueueFull(f"{self._waiting} changes of adapters wait already. Try again.", retry_after=1.0)
        self._waiting += 1
        task = asyncio.get_running_loop().create_task(change)
        task.add_done_callback(self._changed)
        return await asyncio.shield(task)

    def _changed(self, task: asyncio.Task[Adapter]) -> None:
        self._waiting -= 1
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not report it as unseen

    def _there(self, name: str, source: str) -> Adapter | None:
        """It, if it is there already. Raises AdaptersFull."""
        known = self.known
        if (there := known.get(name)) is not None:
            return there if there.source == source else None
        if len(known) >= self.most:
            raise AdaptersFull(
                f"There are {len(known)} adapters already, as many as --max-loras allows: unload one of {', '.join(sorted(known))}.",
                param="lora_name",
            )
        return None

    async def _load(self, name: str, source: str) -> Adapter:
        if (there := self._there(name, source)) is not None:
            return there
        folder = await in_thread(lambda: _found(self._find, source))  # others may change meanwhile
        async with self._turn:
            if (there := self._there(name, source)) is not None:
                return there
            changed = await self._engine.load_adapter(name, str(folder))
            _check(changed, "lora_path")
            return self._keep(name, source, changed)

    def _keep(self, name: str, source: str, changed: AdapterChanged) -> Adapter:
        made = self._known[name] = Adapter(name, source, int(time.time()), changed.generation)
        structlog.get_logger().info("adapter loaded", name=name, source=source, generation=made.generation)
        return made

    async def _unload(self, name: str) -> Adapter:
        async with self._turn:
            return await self._unload_in_turn(name)

    async def _unload_in_turn(self, name: str) -> Adapter:
        if (gone := self.known.pop(name, None)) is None:
            raise AdapterNotFound(
                f"There is no adapter {name!r} here; there is {', '.join(sorted(self.known)) or 'none'}.",
                param="lora_name",
            )
        _check(await self._engine.unload_adapter(name), "lora_name")
        structlog.get_logger().info("adapter unloaded", name=name, source=gone.source)
        return gone


def make_adapters(settings: Settings, engine: Engine, find: Find) -> Adapters | None:
    """None: the server was started without --enable-lora."""
    if not settings.enable_lora:
        return None
    return Adapters(engine, settings.served_names, settings.max_loras, find, settings.lora_modules)


def _check(changed: AdapterChanged, param: str) -> None:
    match changed.refused:
        case "unfit":
            raise AdapterUnfit(changed.detail, param=param)
        case "full":
            raise AdaptersFull(changed.detail, param="lora_name")
        case "unknown":
            raise AdapterNotFound(changed.detail, param="lora_name")


async def in_thread(work: Callable[[], T]) -> T:
    """In a thread of its own, which does not keep the process from ending: a download may wait for a source for minutes."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # any: it is raised where it is waited for
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="adapter").start()
    return await asyncio.wrap_future(done)


def _found(find: Find, source: str) -> Path:
    """`find`, with errors as a request has them."""
    try:
        return find(source)
    except ModelUnavailable as error:
        raise Unavailable(f"{error} Try again.", retry_after=5.0) from error
    except (ModelNotFound, AccessDenied) as error:
        raise AdapterNotFound(str(error), param="lora_path") from error
    except BadConfiguration as error:
        raise AdapterUnfit(str(error), param="lora_path") from error
    except LoadError as error:
        raise AdapterUnfit(str(error), param="lora_path") from error
    except RequestError:
        raise
    except Exception as error:  # any: of a source, a disk or a file; this load fails alone
        structlog.get_logger().error("an adapter cannot be found", source=source, error=repr(error))
        raise AdapterUnfit(f"{source}: {type(error).__name__}.", param="lora_path") from error
