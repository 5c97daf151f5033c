"""docs/concepts/architecture.md: the API process bounds what an engine does not read, and drops a request that it cannot send.

A fake engine process is at the other end.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from llmendpoint_server import protocol
from llmendpoint_server.api import engine_client
from llmendpoint_server.api.engine_client import EngineClient
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.errors import EngineFailed, QueueFull

FAKE = (sys.executable, str(Path(__file__).with_name("fake_engine.py")))


def with_engine(body: Callable[[EngineClient], Awaitable[None]]) -> None:
    """Runs `body` with a client whose engine is ready."""

    async def main() -> None:
        client = EngineClient(protocol.Configure(model_path="m"), step_timeout=60, command=FAKE)
        await client.start()
        try:
            async with asyncio.timeout(60):
                while client.state != "ready":  # noqa: ASYNC110  # it tells no event
                    await asyncio.sleep(0.01)
                await body(client)
        finally:
            assert client._process is not None
            client._process.kill()
            await client.stop()

    asyncio.run(main())


def test_a_request_that_cannot_be_encoded_is_refused_and_nothing_of_it_stays() -> None:
    async def body(client: EngineClient) -> None:
        with pytest.raises(EngineFailed, match="cannot be handed to the engine: OverflowError"):
            client.submit(Request("a", (2**64,), SamplingParams(5)))
        with pytest.raises(EngineFailed, match="cannot be handed to the engine: ProtocolError"):
            client.submit(Request("b", (1,) * (protocol.MAX_FRAME_BYTES + 1), SamplingParams(5)))
        assert client.in_flight == 0
        assert client.idle.is_set(), "a drain waits for what is not there"
        output = await client.submit(Request("c", (1,), SamplingParams(1))).next()
        assert output.tokens == (1,)

    with_engine(body)


def test_the_backlog_of_an_engine_that_does_not_read_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_ENGINE", '{"deaf": true}')
    monkeypatch.setattr(engine_client, "MOST_UNREAD_BYTES", 2**20)

    async def body(client: EngineClient) -> None:
        async def submit_many() -> None:
            for number in range(1000):
                client.submit(Request(str(number), (2**31 - 1,) * 20_000, SamplingParams(5)))
                await asyncio.sleep(0)

        with pytest.raises(QueueFull, match="backlog of requests is full"):
            await submit_many()
        assert client.in_flight < 30

    with_engine(body)
