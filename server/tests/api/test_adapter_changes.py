"""docs/concepts/adapters.md: changes of adapters are bounded in number, and go on though their caller is gone."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmendpoint_server.api.adapters import Adapters
from llmendpoint_server.errors import QueueFull
from llmendpoint_server.limits import ADAPTER_CHANGES_WAITING_MAX
from llmendpoint_server.protocol import AdapterChanged

pytestmark = pytest.mark.asyncio


class Source:
    """Whose downloads take until `there` is set."""

    def __init__(self) -> None:
        self.there = threading.Event()

    def find(self, source: str) -> Path:
        assert self.there.wait(10)
        return Path("/adapters") / source


async def load_adapter(name: str, folder: str) -> AdapterChanged:
    return AdapterChanged(1, generation=1)


def made(source: Source) -> Adapters:
    engine: Any = SimpleNamespace(loaded=None, load_adapter=load_adapter)
    return Adapters(engine, ("chat",), ADAPTER_CHANGES_WAITING_MAX + 1, source.find)


async def test_more_changes_than_may_wait_are_refused_until_one_has_ended() -> None:
    source = Source()
    adapters = made(source)
    waiting = [
        asyncio.create_task(adapters.load(f"a{n}", str(n))) for n in range(ADAPTER_CHANGES_WAITING_MAX)
    ]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull, match="changes of adapters wait"):
        await asyncio.wait_for(adapters.load("one-more", "x"), 5)
    source.there.set()
    await asyncio.gather(*waiting)
    assert (await adapters.load("one-more", "x")).name == "one-more"


async def test_a_load_goes_on_though_its_caller_is_gone() -> None:
    source = Source()
    adapters = made(source)
    caller = asyncio.create_task(adapters.load("sql", "x"))
    await asyncio.sleep(0.01)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    source.there.set()
    async with asyncio.timeout(10):
        while True:
            if adapters.of("chat:sql") is not None:
                return
            await asyncio.sleep(0.01)


async def test_an_adapter_is_named_alone_or_behind_a_name_of_its_model() -> None:
    source = Source()
    source.there.set()
    adapters = made(source)
    await adapters.load("sql", "x")
    assert [adapters.of(name) is not None for name in ("sql", "chat:sql", "other:sql", ":sql", "chat:")] == [
        True, True, False, False, False,
    ]  # fmt: skip
