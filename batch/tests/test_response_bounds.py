"""docs/concepts/responses.md: bounds on responses that are open, and what is left of those that are refused or break."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from aiohttp.test_utils import TestServer

from batch.tests.responding import MODEL, happens
from batch.tests.upstream import serve_upstream
from llmendpoint_batch.api import response_replays, rooms
from llmendpoint_batch.api.app import make_api
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core import lane
from llmendpoint_batch.core.outcomes import MOST_ATTEMPTS, Broken
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store import response_events, response_usage, responses
from llmendpoint_batch.store.opening import open_storage
from llmendpoint_batch.work import background as in_background
from llmendpoint_batch.work.background import Background
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.times import Times

pytestmark = pytest.mark.asyncio


@contextlib.asynccontextmanager
async def in_process(data: Path, gateway: str) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """The service's API with its database, whose bounds a test may change."""
    settings, opened = Settings(data, gateway), await open_storage(data, None, print)
    times, sender = Times(opened.saved), Sender(gateway, 10)
    await sender.open()
    background = Background(opened.database, sender, times, settings, Metrics())
    service = Service(opened.database, opened.blobs, sender, background, times, settings, lambda: None)
    try:
        async with (
            TestServer(make_api(service)) as server,
            httpx.AsyncClient(base_url=str(server.make_url(""))) as client,
        ):
            yield client, service
    finally:
        await sender.close()
        opened.database.close()


async def test_of_a_response_that_finds_no_room_for_its_conversation_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows its id, so nobody could delete it."""
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, service):
        body = {"model": MODEL, "input": "x" * 4000}
        first = (await client.post("/v1/responses", json=body)).json()
        monkeypatch.setattr(rooms, "OPEN_BYTES", 2000)
        more = {"model": MODEL, "input": "y", "previous_response_id": first["id"]}
        refused = await client.post("/v1/responses", json=more)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_responses")
        count, _ = await service.database.read(response_usage.usage)
        assert count == 1


@pytest.mark.parametrize(("bound", "most"), [("CHAIN_DEPTH", 2), ("MOST_ITEMS", 4), ("CHAIN_BYTES", 500)])
async def test_a_conversation_has_a_bound_in_responses_items_and_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(responses, bound, most)
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, _):
        body, answers = {"model": MODEL, "input": "y"}, []
        for _ in range(3):
            answers.append(await client.post("/v1/responses", json=body))
            body["previous_response_id"] = answers[-1].json().get("id", "")
        assert [answer.status_code for answer in answers] == [200, 200, 400]
        assert answers[-1].json()["error"]["code"] == "conversation_too_long"


async def test_background_responses_that_are_not_finished_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "MOST_QUEUED", 1)
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, _):
        body = {"model": MODEL, "input": "y", "background": True}
        first, second = [await client.post("/v1/responses", json=body) for _ in range(2)]
        assert (first.status_code, second.status_code) == (200, 429)
        assert (second.json()["error"]["param"], second.json()["error"]["code"]) == (
            "background",
            "too_many_responses",
        )
        await client.post(f"/v1/responses/{first.json()['id']}/cancel")
        assert (await client.post("/v1/responses", json=body)).status_code == 200


async def test_background_responses_of_all_endpoints_together_have_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each holds its conversation and its answer in memory."""
    monkeypatch.setattr(in_background, "IN_FLIGHT", 2)
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, service):
        upstream.seconds = 0.2
        body = {"input": "y", "background": True}
        for number in range(6):
            await client.post("/v1/responses", json=body | {"model": f"default/{number}"})
        running = asyncio.create_task(service.background.run())
        await happens(lambda: len(upstream.order) == 6 and not upstream.now)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert upstream.most == 2


@pytest.mark.parametrize("fault", ["endpoint", "service"])
async def test_a_background_response_whose_attempts_all_break_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(lane, "FIRST_WAIT", 0.01)
    sent: list[str] = []

    async def send(*_: object) -> Broken:
        sent.append(fault)
        if fault == "service":
            raise RuntimeError("a fault of this program")
        return Broken("The connection broke.", sent=True)

    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, service):
        monkeypatch.setattr(service.sender, "send", send)
        made = (
            await client.post("/v1/responses", json={"model": MODEL, "input": "y", "background": True})
        ).json()
        running = asyncio.create_task(service.background.run())
        async with asyncio.timeout(20):
            while True:
                found = (await client.get(f"/v1/responses/{made['id']}")).json()
                if found["status"] == "failed":
                    break
                await asyncio.sleep(0.02)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert len(sent) == MOST_ATTEMPTS
        assert found["error"]["code"] == "server_error"


@pytest.mark.parametrize("bound", ["EVENTS_BYTES", "responses_bytes"])
async def test_a_background_stream_whose_events_find_no_room_fails_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, service):
        if bound == "EVENTS_BYTES":
            monkeypatch.setattr(response_events, bound, 2_000)
        else:
            monkeypatch.setattr(service.background.events, "_most_bytes", 2_000)
        running = asyncio.create_task(service.background.run())
        body = {"model": MODEL, "input": "y" * 100, "background": True, "stream": True}
        text = (await client.post("/v1/responses", json=body)).text
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        last = text.split("event: ")[-1]
        assert last.startswith("response.failed")
        assert "more than 2000 bytes" in last or "may have 2000 bytes" in last


async def test_a_silent_stream_has_comments_and_who_leaves_it_frees_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_replays, "SILENT_SECONDS", 0.05)
    monkeypatch.setattr(response_replays, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(rooms, "OPEN_REQUESTS", 1)
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, _):
        body = {"model": MODEL, "input": "y", "background": True, "stream": True}  # nobody sends it
        async with client.stream("POST", "/v1/responses", json=body) as answer:
            async for line in answer.aiter_lines():
                if line.startswith(":"):
                    break
            assert (await client.post("/v1/responses", json=body)).status_code == 429

        async with asyncio.timeout(10):
            for _ in range(500):
                answer = await client.post("/v1/responses", json=body | {"stream": False})
                if answer.status_code == 200:
                    break
                await asyncio.sleep(0.02)
        assert answer.status_code == 200
