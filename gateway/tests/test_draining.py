"""A gateway that is about to be stopped: its clients go elsewhere, and nobody's request is lost by that."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from gateway.tests.harness import Gateway
from llmendpoint_gateway.drain import run_drain

CHAT = "/v1/chat/completions"
SECONDS = 2.0


@contextlib.asynccontextmanager
async def draining(gateway: Gateway) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command that the chart has run in Envoy's container; at the end it has ended well."""
    socket = ("--socket", str(gateway.socket))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llmendpoint_gateway", "drain", *socket, "--seconds", str(SECONDS)
    )
    yield process
    assert await process.wait() == 0


async def test_each_answer_of_a_gateway_that_drains_closes_its_connection_and_none_is_lost(
    gateway: Gateway,
) -> None:
    """The last one of this gateway: it is not undone."""
    name = gateway.endpoint(gateway.backend("a"))
    body = {"model": f"team/{name}"}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        kept = client.build_request(
            "POST", CHAT, json=body, headers={"x-tokens": "100", "x-interval": "0.04"}
        )
        stream = await client.send(kept, stream=True)
        assert "connection" not in (await client.post(CHAT, json=body)).headers
        async with draining(gateway) as command:  # which ends a while after Envoy was told
            answers = []
            while command.returncode is None:
                answers.append(await client.post(CHAT, json=body))
                await asyncio.sleep(0.01)
        assert {answer.status_code for answer in answers} == {200}
        closing = [answer.headers.get("connection") == "close" for answer in answers]
        assert closing == sorted(closing)  # from some moment on, every one
        assert closing[-1]
        assert (await stream.aread()).rstrip().endswith(b"[DONE]")


def test_a_drain_lasts_its_time_also_where_envoy_does_not_answer(tmp_path: Path) -> None:
    begun = time.monotonic()
    run_drain(tmp_path / "control.sock", 0.2)
    assert time.monotonic() - begun >= 0.2
