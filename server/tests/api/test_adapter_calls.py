"""docs/concepts/adapters.md: a question about adapters has an answer, though the engine process ends before it gives one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llmendpoint_server import protocol
from llmendpoint_server.api.adapter_calls import AdapterCalls
from llmendpoint_server.api.adapters import Adapters
from llmendpoint_server.errors import AdapterNotFound, AdaptersFull, QueueFull, RequestError, Unavailable
from llmendpoint_server.limits import ADAPTER_CHANGES_WAITING_MAX
from llmendpoint_server.protocol import AdapterChanged


class Engine:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.loaded = SimpleNamespace()
        self.asked: list[tuple[str, str]] = []
        self.go, self.was_asked = asyncio.Event(), asyncio.Event()
        self.answer = AdapterChanged(0, generation=1)

    async def load_adapter(self, name: str, folder: str) -> AdapterChanged:
        self.asked.append((name, folder))
        self.was_asked.set()
        await self.go.wait()
        return self.answer

    async def unload_adapter(self, name: str) -> AdapterChanged:
        return AdapterChanged(0)


def adapters(engine: Engine, find: Any = Path, most: int = 4) -> Adapters:
    given: Any = engine
    return Adapters(given, ("chat",), most, find)


async def test_answers_reach_their_questions_in_any_order_and_later_ones_are_refused() -> None:
    sent: list[protocol.ToEngine] = []
    calls = AdapterCalls(sent.append)
    waiting = [asyncio.ensure_future(calls.load(name, "/x")) for name in "ab"]
    last = asyncio.ensure_future(calls.unload("c"))
    await asyncio.sleep(0)
    calls.take(AdapterChanged(2, generation=7))
    calls.take(AdapterChanged(1, generation=8))
    assert [(await one).generation for one in waiting] == [8, 7]
    calls.take(AdapterChanged(99))
    calls.fail("The engine process has gone.")
    with pytest.raises(Unavailable, match="has gone"):
        await last
    with pytest.raises(Unavailable, match="has gone"):
        await calls.load("d", "/x")
    assert len(sent) == 3


async def test_a_load_goes_on_though_its_caller_is_gone() -> None:
    engine = Engine()
    known = adapters(engine)
    caller = asyncio.ensure_future(known.load("sql", "/x"))
    await engine.was_asked.wait()
    caller.cancel()
    engine.go.set()
    await known.load("sql", "/x")  # after it, which has loaded the same
    assert engine.asked == [("sql", "/x")]
    assert known.of("chat:sql") is known.of("sql")
    assert known.of("other:sql") is None


async def test_equal_loads_at_one_time_ask_the_engine_once() -> None:
    engine = Engine()
    known = adapters(engine)
    both = [asyncio.ensure_future(known.load("sql", "/x")) for _ in range(2)]
    engine.go.set()
    assert await both[0] is await both[1]
    assert engine.asked == [("sql", "/x")]


async def test_a_source_that_is_slow_delays_no_other_change_and_those_that_wait_have_a_bound() -> None:
    engine = Engine()
    engine.go.set()

    def find(source: str) -> Path:
        time.sleep(0.5 if source == "slow" else 0)
        return Path(source)

    known = adapters(engine, find, most=100)
    slow = [
        asyncio.ensure_future(known.load(f"slow-{number}", "slow"))
        for number in range(ADAPTER_CHANGES_WAITING_MAX - 1)
    ]
    await asyncio.sleep(0)
    began = time.monotonic()
    await known.load("fast", "/x")
    await known.unload("fast")
    assert time.monotonic() - began < 0.4
    slow.append(asyncio.ensure_future(known.load("one more", "slow")))
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await known.load("too many", "/x")
    await asyncio.gather(*slow)


@pytest.mark.parametrize(
    ("refused", "error", "param"),
    [("full", AdaptersFull, "lora_name"), ("unknown", AdapterNotFound, "lora_name")],
)
async def test_what_the_engine_refuses_is_not_known(
    refused: protocol.Refused, error: type[RequestError], param: str
) -> None:
    engine = Engine()
    engine.go.set()
    engine.answer = AdapterChanged(0, refused, "why")
    known = adapters(engine)
    with pytest.raises(error, match="why") as caught:
        await known.load("sql", "/x")
    assert caught.value.param == param
    assert known.known == {}


async def test_a_source_that_raises_anything_fails_the_load_alone() -> None:
    engine = Engine()
    engine.go.set()

    def find(source: str) -> Path:
        raise ZeroDivisionError

    with pytest.raises(RequestError, match="ZeroDivisionError"):
        await adapters(engine, find).load("sql", "/x")
