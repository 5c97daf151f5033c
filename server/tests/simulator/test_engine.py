"""docs/guides/rehearsal.md: the simulator's queue has the server's bounds, order and deadlines, and says when to come again."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from llmendpoint_server.api.engine_stream import EngineStream
from llmendpoint_server.core.request import FinishReason, Priority, Request, SamplingParams
from llmendpoint_server.settings import Settings
from llmendpoint_server.simulator.behaviour import Behaviour
from llmendpoint_server.simulator.engine import SimulatedEngine


@pytest.mark.parametrize(
    ("most_tokens", "lived", "told"),
    [(1000, 20.0, 20.0), (1000, 1000.0, 60.0), (12, 20.0, 12.0)],
    ids=["as old as the running one", "at most a minute", "no longer than to its limit of tokens"],
)
async def test_a_refused_caller_is_told_the_time_to_the_next_free_place(
    most_tokens: int, lived: float, told: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = SimulatedEngine(
        Settings("any", ("any",), max_num_seqs=1, max_queued_requests=0),
        Behaviour(load_time=0, ttft=600, itl=1),
    )
    await engine.start()
    await asyncio.gather(*engine._tasks)  # the load

    def ask(name: str) -> EngineStream:
        return engine.submit(Request(name, (1, 2), SamplingParams(most_tokens, ignore_eos=True)))

    ask("running")
    loop = asyncio.get_running_loop()
    now = loop.time() + lived
    monkeypatch.setattr(loop, "time", lambda: now)
    refusal = await ask("refused").next()
    monkeypatch.undo()
    assert refusal.finish is FinishReason.REJECTED
    assert refusal.retry_after == pytest.approx(told, abs=0.5)
    await engine.stop()


async def busy_engine(**settings: int) -> SimulatedEngine:
    """One place, and a request in it that gets its first token at once and no other."""
    engine = SimulatedEngine(
        Settings("any", ("any",), max_num_seqs=1, **settings), Behaviour(load_time=0, ttft=0, itl=600)
    )  # type: ignore[arg-type]  # whole numbers only
    await engine.start()
    await asyncio.gather(*engine._tasks)
    engine.submit(Request("running", (1, 2), SamplingParams(1000)))
    return engine


def waiting(name: str, priority: Priority = Priority.NORMAL, deadline: float | None = None) -> Request:
    return Request(name, (1, 2), SamplingParams(1000), time.monotonic(), "", priority, deadline)


async def test_a_waiting_request_ends_at_its_deadline_and_what_runs_goes_on() -> None:
    engine = await busy_engine()
    end = await engine.submit(waiting("late", deadline=time.monotonic() + 0.5)).next()
    assert (end.finish, end.detail) == (FinishReason.EXPIRED, "its deadline passed while it waited")
    assert (engine.stats.waiting, engine.stats.running) == (0, 1)
    assert engine.stats.counters.deadlines_passed == 1
    await engine.stop()


async def test_the_highest_priority_runs_next() -> None:
    engine = await busy_engine()
    for priority in (Priority.LOW, Priority.NORMAL, Priority.HIGH):
        engine.submit(waiting(priority.value, priority))
    began = []
    for last in ("running", "high", "normal"):
        next(stream for stream in engine._sequences if stream.id == last).close()
        began += [stream.id for stream, one in engine._sequences.items() if one.task is not None]
    assert began == ["high", "normal", "low"]
    await engine.stop()


async def test_a_low_request_gives_its_place_in_a_full_queue_to_another_one() -> None:
    engine = await busy_engine(max_queued_tokens=3)
    low = engine.submit(waiting("low", Priority.LOW))
    normal = engine.submit(waiting("normal"))
    end = await low.next()
    assert (end.finish, end.detail) == (
        FinishReason.REJECTED, "a request of a higher priority took its place",
    )  # fmt: skip
    assert end.retry_after >= 1
    assert engine.stats.waiting == 1
    next(stream for stream in engine._sequences if stream.id == "running").close()
    assert (await normal.next()).finish is None
    assert engine.stats.counters.refused_tokens == 1
    await engine.stop()


async def test_the_waiting_prompts_have_a_bound_in_tokens() -> None:
    engine = await busy_engine(max_queued_tokens=3)
    engine.submit(waiting("waits"))
    assert engine.stats.waiting_tokens == 2
    refusal = await engine.submit(waiting("refused")).next()
    assert refusal.finish is FinishReason.REJECTED
    assert "the limit is 3 (--max-queued-tokens)" in refusal.detail
    await engine.stop()


async def test_log_probabilities_are_told_of_prompt_and_answer_as_they_are_asked_for() -> None:
    engine = SimulatedEngine(Settings("any", ("any",)), Behaviour(load_time=0, ttft=0, itl=0))
    await engine.start()
    await asyncio.gather(*engine._tasks)
    asked = SamplingParams(1, logprobs=3, prompt_logprobs=0)
    output = await engine.submit(Request("told", (5, 6, 7), asked)).next()
    (said,) = output.logprobs
    assert said.token == output.tokens[0]
    assert said.top[0] == (said.token, said.logprob)
    assert len({token for token, _ in said.top}) == 3
    assert sum(math.exp(score) for _, score in said.top) < 1
    first, *rest = output.prompt_logprobs
    assert first is None
    assert [one and (one.token, one.top) for one in rest] == [(6, ()), (7, ())]
    silent = await engine.submit(Request("silent", (5, 6, 7), SamplingParams(1))).next()
    assert (silent.logprobs, silent.prompt_logprobs) == ((), ())
    await engine.stop()
