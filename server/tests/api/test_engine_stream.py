"""docs/concepts/architecture.md: the API process hands each output to the answer that it belongs to, once and in order."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server import protocol
from llmendpoint_server.api.engine_client import outputs_of
from llmendpoint_server.api.engine_stream import EngineStream
from llmendpoint_server.core.request import FinishReason, RequestOutput


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


def test_outputs_of_several_steps_are_merged_by_request() -> None:
    first = protocol.StepOutput((RequestOutput("a", (1,)), RequestOutput("b", (7,), cached_tokens=16)))
    second = protocol.StepOutput((RequestOutput("b", (8,), FinishReason.STOP), RequestOutput("a", (2,))))
    assert list(outputs_of([first, second])) == [
        RequestOutput("a", (1, 2)),
        RequestOutput("b", (7, 8), FinishReason.STOP, cached_tokens=16),
    ]
    assert list(outputs_of([first])) == list(first.outputs)
    assert list(outputs_of([])) == []
