"""docs/guides/rehearsal.md: `--max-queued-requests` works as in the server: who is refused is told when a place is free."""

from __future__ import annotations

import asyncio

import pytest

from llmendpoint_server.api.engine_stream import EngineStream
from llmendpoint_server.core.request import FinishReason, Request, SamplingParams
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
