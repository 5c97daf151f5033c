"""docs/concepts/architecture.md: the API process hands each output to the answer that it belongs to, once and in order."""

from __future__ import annotations

import asyncio
import gc
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server import protocol
from llmendpoint_server.api import engine_client, engine_stream
from llmendpoint_server.api.engine_client import MANY_STREAMS, EngineClient
from llmendpoint_server.api.engine_stream import EngineStream
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, SamplingParams


def stream() -> EngineStream:
    return EngineStream("a", lambda _: None)


def output(*tokens: int, finish: FinishReason | None = None) -> RequestOutput:
    return RequestOutput("a", tokens, finish)


async def test_a_reader_gets_each_output_in_the_call_that_delivers_it() -> None:
    ours, seen = stream(), []

    def reader(output: RequestOutput) -> bool:
        seen.append(output.tokens)
        return output.finish is None

    ours.deliver(output(1))
    ours.deliver(output(2, 3))
    reading = asyncio.create_task(ours.read(reader))
    await asyncio.sleep(0)
    assert seen == [(1, 2, 3)]  # what came before is merged
    ours.deliver(output(4))
    assert seen == [(1, 2, 3), (4,)]
    assert not ours.ended
    ours.deliver(output(5, finish=FinishReason.LENGTH))
    ours.deliver(output(6))  # after the last one
    await reading
    assert seen == [(1, 2, 3), (4,), (5,)]
    assert ours.ended


async def test_what_a_reader_raises_ends_its_reading_and_not_the_delivery() -> None:
    ours = stream()

    def reader(output: RequestOutput) -> bool:
        raise RuntimeError("bad text")

    reading = asyncio.create_task(ours.read(reader))
    await asyncio.sleep(0)
    ours.deliver(output(1))
    ours.deliver(output(2))
    with pytest.raises(RuntimeError, match="bad text"):
        await reading
    assert (await ours.next()).tokens == (2,)


async def test_a_reader_whose_task_was_cancelled_gets_nothing_more() -> None:
    ours, seen = stream(), []

    def reader(output: RequestOutput) -> bool:
        seen.append(output.tokens)
        return True

    reading = asyncio.create_task(ours.read(reader))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.wait([reading])
    ours.deliver(output(1))
    assert seen == []


async def test_what_a_slow_reader_has_not_read_is_one_output_and_has_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine_stream, "UNREAD_TOKENS_MAX", 100)
    forgotten: list[EngineStream] = []
    ours = EngineStream("a", forgotten.append)
    before = len(gc.get_objects())
    for token in range(100):
        ours.deliver(output(token))
    assert len(gc.get_objects()) < before + 20
    assert forgotten == []
    ours.deliver(output(100))
    assert forgotten == [ours]  # the engine is told to stop
    ours.deliver(output(101))
    last = await ours.next()
    assert last.tokens == tuple(range(101))
    assert last.finish is FinishReason.FAILED
    assert "left 101 tokens of its answer unread" in last.detail


@given(st.lists(st.integers(1, 4)), st.lists(st.booleans()), st.data())
def test_every_token_is_read_once_and_in_order_however_often_a_reader_pauses(
    sizes: list[int], more: list[bool], data: st.DataObject
) -> None:
    async def main() -> list[int]:
        ours, seen, answers = stream(), [], iter(more)
        last = False

        def reader(output: RequestOutput) -> bool:
            nonlocal last
            seen.extend(output.tokens)
            last = output.finish is not None
            return next(answers, True) and not last

        async def read_all() -> None:
            while not last:
                await ours.read(reader)

        reading = asyncio.create_task(read_all())
        made = 0
        for size in sizes:
            ours.deliver(output(*range(made, made + size)))
            made += size
            if data.draw(st.booleans()):
                await asyncio.sleep(0)
        ours.deliver(output(finish=FinishReason.LENGTH))
        await reading
        return seen

    assert asyncio.run(main()) == list(range(sum(sizes)))


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that two steps fall into one turn, however slow the machine is."""
    monkeypatch.setattr(engine_client, "TURN_SECONDS", 0.5)


class Turns:
    """An engine's client with so many requests, and what their readers got in each call."""

    def __init__(self, requests: int) -> None:
        self.client = EngineClient(protocol.Configure("m"), step_timeout=60)
        self.client.connection_made(Mock(is_closing=lambda: False, get_write_buffer_size=lambda: 0))
        self.client.data_received(protocol.encode(protocol.StateChanged("ready")))
        self.seen: list[tuple[str, tuple[int, ...]]] = []
        self.streams: dict[str, EngineStream] = {}
        self.names = [str(number) for number in range(requests)]
        self.reading = [asyncio.create_task(self._read(name)) for name in self.names]

    async def _read(self, name: str) -> None:
        def reader(output: RequestOutput) -> bool:
            self.seen.append((name, output.tokens))
            return output.finish is None

        self.streams[name] = self.client.submit(Request(name, (1,), SamplingParams(9)))
        await self.streams[name].read(reader)

    async def step(self, token: int, ending: str = "") -> list[tuple[str, tuple[int, ...]]]:
        """One step with this token for each request. Returns what readers got of it at once."""
        await asyncio.sleep(0)
        outputs = [
            RequestOutput(name, (token,), FinishReason.LENGTH if name == ending else None)
            for name in self.names
        ]
        self.seen.clear()
        self.client.data_received(protocol.encode(protocol.StepOutput(tuple(outputs))))
        return list(self.seen)

    async def turn(self) -> list[tuple[str, tuple[int, ...]]]:
        """What readers get at the next turn."""
        self.seen.clear()
        async with asyncio.timeout(30):
            while not self.seen:  # noqa: ASYNC110  # it tells no event
                await asyncio.sleep(0.02)
        return self.seen


async def test_with_few_requests_no_token_waits() -> None:
    few = Turns(MANY_STREAMS - 1)
    for token in range(3):
        assert await few.step(token) == [(name, (token,)) for name in few.names]


async def test_with_many_requests_only_first_and_last_tokens_do_not_wait_for_the_turn() -> None:
    many = Turns(MANY_STREAMS)
    assert await many.step(1) == [(name, (1,)) for name in many.names]
    assert await many.step(2) == []
    assert await many.step(3, ending="7") == [("7", (2, 3))]
    assert await many.turn() == [(name, (2, 3)) for name in many.names if name != "7"]


async def test_tokens_that_wait_come_before_the_failure_that_ends_their_request() -> None:
    many = Turns(MANY_STREAMS)
    await many.step(1)
    await many.step(2)
    many.client.fail_all("gone")
    assert many.seen[:MANY_STREAMS] == [(name, (2,)) for name in many.names]
    await asyncio.wait_for(asyncio.gather(*many.reading), 5)


async def test_tokens_of_a_request_that_was_dropped_go_nowhere() -> None:
    many = Turns(MANY_STREAMS)
    await many.step(1)
    await many.step(2)
    many.streams["3"].close()
    assert await many.turn() == [(name, (2,)) for name in many.names if name != "3"]
