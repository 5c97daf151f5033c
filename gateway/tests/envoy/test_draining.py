"""docs/concepts/gateway.md: a gateway that is stopped sends its clients elsewhere, and loses no request by that."""

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx

from gateway.tests.harness import Gateway
from llmendpoint_gateway.serve.envoy.drain import LEAST_SECONDS, QUIET_SECONDS, run_drain

CHAT = "/v1/chat/completions"
SECONDS = 60.0


@contextlib.asynccontextmanager
async def draining(
    gateway: Gateway, least: float = LEAST_SECONDS
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command that the chart has run in Envoy's container; at the end it has ended well."""
    options = ["--socket", str(gateway.socket), "--seconds", str(SECONDS)]
    if least != LEAST_SECONDS:
        options += ["--least-seconds", str(least)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "llmendpoint_gateway", "drain", *options
    )
    yield process
    assert await process.wait() == 0


async def test_each_answer_of_a_gateway_that_drains_closes_its_connection_and_none_is_lost(
    gateway: Gateway,
) -> None:
    """The first one of this gateway: it is not undone."""
    name = gateway.endpoint(gateway.backend("a"))
    body = {"model": f"team/{name}"}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client:
        kept = client.build_request(
            "POST", CHAT, json=body, headers={"x-tokens": "100", "x-interval": "0.04"}
        )
        stream = await client.send(kept, stream=True)
        assert "connection" not in (await client.post(CHAT, json=body)).headers
        async with draining(gateway) as command:  # which ends a while after Envoy was told
            answers: list[httpx.Response] = []
            while command.returncode is None and len(answers) < 200:
                answers.append(await client.post(CHAT, json=body))
                await asyncio.sleep(0.01)
            assert {answer.status_code for answer in answers} == {200}
            closing = [answer.headers.get("connection") == "close" for answer in answers]
            assert closing == sorted(closing)  # from some moment on, every one
            assert closing[-1]
            assert (await stream.aread()).rstrip().endswith(b"[DONE]")


async def test_a_drain_ends_with_the_last_request_and_not_before(gateway: Gateway) -> None:
    """A fixed sleep of 30 s cut longer answers, and made every stop take so long."""
    name = gateway.endpoint(gateway.backend("a"))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        headers = {"x-tokens": "40", "x-interval": "0.1"}
        request = client.build_request("POST", CHAT, json={"model": f"team/{name}"}, headers=headers)
        stream = await client.send(request, stream=True)
        begun = time.monotonic()
        async with draining(gateway, least=1) as command:
            assert (await stream.aread()).rstrip().endswith(b"[DONE]")
            ended = time.monotonic()
            assert command.returncode is None
            assert await command.wait() == 0
        assert time.monotonic() - begun < SECONDS
        assert ended - begun > 1 + QUIET_SECONDS  # else this has shown nothing


async def test_a_drain_goes_on_while_short_requests_come_of_which_none_is_under_way_at_a_look(
    gateway: Gateway,
) -> None:
    """It asked how many are under way, five times a second, and ended between two."""
    least = 0.5
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
        draining(gateway, least) as command,
    ):
        begun = time.monotonic()
        while time.monotonic() - begun < least + 4 * QUIET_SECONDS:
            assert (await client.get("/v1/models")).status_code == 200
            await asyncio.sleep(0.3)
        assert command.returncode is None


def test_a_drain_may_be_told_for_how_long_connections_still_come(gateway: Gateway) -> None:
    begun = time.monotonic()
    run_drain(gateway.socket, SECONDS, least=0.2)
    assert QUIET_SECONDS <= time.monotonic() - begun < LEAST_SECONDS


async def test_a_drain_ends_at_its_limit_though_a_request_goes_on(gateway: Gateway) -> None:
    least = 0.5
    name = gateway.endpoint(gateway.backend("a"))
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as client:
        headers = {"x-tokens": "1000", "x-interval": "0.1"}
        request = client.build_request("POST", CHAT, json={"model": f"team/{name}"}, headers=headers)
        stream = await client.send(request, stream=True)
        await asyncio.to_thread(run_drain, gateway.socket, least + 2 * QUIET_SECONDS, least)
        assert gateway.in_flight(name)
        await stream.aclose()


def test_a_drain_lasts_its_time_also_where_envoy_does_not_answer(tmp_path: Path) -> None:
    begun = time.monotonic()
    run_drain(tmp_path / "control.sock", 0.2)
    assert time.monotonic() - begun >= 0.2
