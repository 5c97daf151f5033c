"""docs/concepts/responses.md: the `openai` SDK stores, continues, streams, runs in the background, reads and deletes."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer
from openai.types.responses import Response

from batch.tests.inputs import line
from batch.tests.postgres import Server
from batch.tests.running import Process, ended, rows, service, submit
from batch.tests.upstream import Json, Upstream, error, serve_upstream
from llmendpoint_batch.api import rooms
from llmendpoint_batch.api.app import make_api
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.core import lane
from llmendpoint_batch.core.outcomes import MOST_ATTEMPTS, Broken
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store import responses
from llmendpoint_batch.store.opening import open_storage
from llmendpoint_batch.work import background as in_background
from llmendpoint_batch.work.background import Background
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.times import Times

MODEL = "default/chat"
SMALL = ("--storage-mib", "80", "--concurrency", "2")
pytestmark = pytest.mark.asyncio(loop_scope="module")
Stage = tuple[Process, Upstream]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["sqlite", "postgres"])
async def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Stage]:
    url = ""
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        url = server.new_database()
    data = tmp_path_factory.mktemp("data")
    async with serve_upstream() as upstream, service(data, upstream.url, *SMALL, database=url) as process:
        yield process, upstream


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


async def until(client: openai.AsyncOpenAI, response_id: str, *states: str) -> Response:
    async with asyncio.timeout(20):
        while True:
            response = await client.responses.retrieve(response_id)
            if response.status in (states or ("completed", "failed", "cancelled", "incomplete")):
                return response
            await asyncio.sleep(0.02)


async def happens(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while True:
            if so():
                return
            await asyncio.sleep(0.02)


async def test_an_answer_is_stored_and_read_again(stage: Stage) -> None:
    process, upstream = stage
    made = await process.client.responses.create(model=MODEL, input="one", metadata={"team": "red"})
    assert made.output_text == "1 eno"
    assert made.id.startswith("resp_")
    assert made.id != "resp_engine"
    assert await process.client.responses.retrieve(made.id) == made
    assert made.metadata == {"team": "red"}
    assert upstream.bodies[-1]["store"] is False
    assert upstream.headers[-1]["x-llmendpoint-responses"] == "direct"
    assert "x-llmendpoint-priority" not in upstream.headers[-1]


async def test_what_is_not_to_be_stored_is_not(stage: Stage) -> None:
    client = stage[0].client
    made = await client.responses.create(model=MODEL, input="one", store=False)
    assert made.id == "resp_engine"
    with pytest.raises(openai.NotFoundError, match="No such response") as caught:
        await client.responses.retrieve(made.id)
    assert caught.value.code == "response_not_found"


async def test_a_response_continues_another_whatever_was_said_before(stage: Stage) -> None:
    process, upstream = stage
    client = process.client
    first = await client.responses.create(model=MODEL, input="one", instructions="Be brief.")
    second = await client.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    assert second.output_text == "3 owt"
    assert second.previous_response_id == first.id
    third = await client.responses.create(
        model=MODEL, input=[{"role": "user", "content": "three"}], previous_response_id=second.id, store=False
    )
    assert third.output_text == "5 eerht"
    said = upstream.bodies[-1]["input"]
    assert [item["role"] for item in said] == ["user", "assistant", "user", "assistant", "user"]
    assert said[1]["content"][0]["text"] == "1 eno"
    assert upstream.bodies[-1].get("instructions") is None, "instructions are of one response alone"
    assert "previous_response_id" not in upstream.bodies[-1]


async def test_a_conversation_whose_part_was_deleted_cannot_be_continued(stage: Stage) -> None:
    client = stage[0].client
    first = await client.responses.create(model=MODEL, input="one")
    second = await client.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    await client.responses.delete(first.id)
    for previous in (first.id, second.id):
        with pytest.raises(openai.BadRequestError, match="No such response") as caught:
            await client.responses.create(model=MODEL, input="x", previous_response_id=previous)
        assert caught.value.param == "previous_response_id"
        assert caught.value.code == "previous_response_not_found"
    assert (await client.responses.retrieve(second.id)).output_text == "3 owt"


async def test_a_background_response_whose_conversation_was_deleted_fails_and_says_so(stage: Stage) -> None:
    process, upstream = stage
    first = await process.client.responses.create(model=MODEL, input="one")
    refused = 0

    async def busy(body: Json) -> Any:
        nonlocal refused
        refused += 1
        return error(503, "no_ready_replica", **{"retry-after": "1"})

    upstream.answer = busy
    made = await process.client.responses.create(
        model=MODEL, input="two", background=True, previous_response_id=first.id
    )
    await happens(lambda: refused > 0)
    await process.client.responses.delete(first.id)
    upstream.answer = None
    done = await until(process.client, made.id)
    assert done.status == "failed"
    assert done.error is not None
    assert "No such response" in done.error.message


async def test_a_stream_passes_and_its_end_is_stored(stage: Stage) -> None:
    client = stage[0].client
    first = await client.responses.create(model=MODEL, input="one")
    async with client.responses.stream(model=MODEL, input="two", previous_response_id=first.id) as events:
        seen = [event async for event in events]
        last = await events.get_final_response()
    assert "".join(e.delta for e in seen if e.type == "response.output_text.delta") == "3 owt"
    ids = {
        e.response.id
        for e in seen
        if e.type in ("response.created", "response.in_progress", "response.completed")
    }
    assert ids == {last.id}
    stored = await client.responses.retrieve(last.id)
    assert (stored.status, stored.output_text) == ("completed", "3 owt")
    assert stored.previous_response_id == first.id


async def test_a_stream_that_breaks_is_a_failed_response(stage: Stage) -> None:
    client = stage[0].client
    stream = await client.responses.create(model=MODEL, input="broken", stream=True)
    seen: list[Any] = [event async for event in stream]
    assert [event.type for event in seen[-2:]] == ["error", "response.failed"]
    assert "answer broke" in seen[-2].message
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    stored = await client.responses.retrieve(seen[0].response.id)
    assert stored == seen[-1].response
    assert stored.status == "failed"
    assert stored.error is not None
    assert stored.error.code == "server_error"


async def test_a_stream_whose_caller_leaves_is_cancelled(stage: Stage) -> None:
    process, upstream = stage
    upstream.seconds = 4
    stream = await process.client.responses.create(model=MODEL, input="a long story", stream=True)
    first: Any = await anext(aiter(stream))
    await stream.close()
    assert (await until(process.client, first.response.id)).status == "cancelled"
    upstream.seconds = 0


async def test_a_background_response_is_queued_and_answered(stage: Stage) -> None:
    process, upstream = stage
    first = await process.client.responses.create(model=MODEL, input="one")
    made = await process.client.responses.create(
        model=MODEL, input="two", background=True, previous_response_id=first.id, metadata={"a": "b"}
    )
    assert made.status == "queued"
    assert made.background
    assert made.metadata == {"a": "b"}
    done = await until(process.client, made.id)
    assert (done.status, done.output_text) == ("completed", "3 owt")
    assert done.id == made.id
    assert done.background
    assert upstream.headers[-1]["x-llmendpoint-priority"] == "low"
    assert "background" not in upstream.bodies[-1]


async def test_the_caller_chooses_the_priority(stage: Stage) -> None:
    process, upstream = stage
    client = process.client.with_options(default_headers={"x-llmendpoint-priority": "high"})
    await client.responses.create(model=MODEL, input="one")
    assert upstream.headers[-1]["x-llmendpoint-priority"] == "high"
    made = await client.responses.create(model=MODEL, input="two", background=True)
    await until(client, made.id)
    assert upstream.headers[-1]["x-llmendpoint-priority"] == "high"


async def test_no_room_is_waited_for_in_the_background_and_told_in_the_foreground(stage: Stage) -> None:
    process, upstream = stage
    refused = 0

    async def busy(body: Json) -> Any:
        nonlocal refused
        refused += 1
        return error(429, "queue_full", **{"retry-after": "1"})

    upstream.answer = busy
    with pytest.raises(openai.RateLimitError, match="queue_full") as caught:
        await process.client.responses.create(model=MODEL, input="one")
    assert caught.value.response.headers["retry-after"] == "1"
    made = await process.client.responses.create(model=MODEL, input="two", background=True)
    await happens(lambda: refused >= 2)
    assert (await process.client.responses.retrieve(made.id)).status in ("queued", "in_progress")
    upstream.answer = None
    assert (await until(process.client, made.id)).status == "completed"


async def test_a_refusal_of_the_endpoint_is_told_or_ends_a_background_response(stage: Stage) -> None:
    client = stage[0].client
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model=MODEL, input="bad")
    assert caught.value.code == "invalid_value"
    with pytest.raises(openai.BadRequestError):
        await client.responses.create(model=MODEL, input="bad", store=False)
    made = await client.responses.create(model=MODEL, input="bad", background=True)
    done = await until(client, made.id)
    assert done.status == "failed"
    assert done.error is not None
    assert (done.error.code, done.error.message) == ("invalid_prompt", "invalid_value")
    with pytest.raises(openai.BadRequestError, match="is failed") as caught:
        await client.responses.create(model=MODEL, input="x", previous_response_id=made.id)
    assert caught.value.code == "previous_response_not_finished"


async def test_an_error_counts_items_as_the_caller_does(stage: Stage) -> None:
    process, upstream = stage
    first = await process.client.responses.create(model=MODEL, input="one")

    async def refuse(body: Json) -> Any:
        return error(400, "input[3].role is wrong")

    upstream.answer = refuse
    items: Any = [{"role": "user", "content": "a"}, {"role": "wrong", "content": "b"}]
    try:
        with pytest.raises(openai.BadRequestError, match=r"input\[1\]\.role is wrong"):
            await process.client.responses.create(model=MODEL, input=items, previous_response_id=first.id)
    finally:
        upstream.answer = None


async def test_a_background_response_is_cancelled_and_others_are_not(stage: Stage) -> None:
    process, upstream = stage
    client = process.client
    upstream.seconds = 5
    made = await client.responses.create(model=MODEL, input="slow", background=True)
    await until(client, made.id, "in_progress")
    cancelled = await client.responses.cancel(made.id)
    assert (cancelled.id, cancelled.status) == (made.id, "cancelled")
    assert (await client.responses.cancel(made.id)).status == "cancelled", "a second cancel changes nothing"
    await happens(lambda: not upstream.now)
    upstream.seconds = 0
    assert (await client.responses.retrieve(made.id)).status == "cancelled"
    other = await client.responses.create(model=MODEL, input="one")
    with pytest.raises(openai.BadRequestError, match="not a background response"):
        await client.responses.cancel(other.id)
    ended_one = await client.responses.create(model=MODEL, input="one", background=True)
    await until(client, ended_one.id)
    assert (await client.responses.cancel(ended_one.id)).status == "completed"


async def test_a_deleted_response_is_gone_also_while_it_is_computed(stage: Stage) -> None:
    process, upstream = stage
    client = process.client
    upstream.seconds = 5
    made = await client.responses.create(model=MODEL, input="slow", background=True)
    await until(client, made.id, "in_progress")
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.delete(made.id)
    upstream.seconds = 0


async def test_input_items_come_in_pages(stage: Stage) -> None:
    client = stage[0].client
    items: list[Any] = [{"role": "user", "content": f"item {n}"} for n in range(5)]
    items[3] = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items[4] = {
        "type": "message",
        "id": "mine",
        "role": "user",
        "content": [{"type": "input_text", "text": "x"}],
    }
    made = await client.responses.create(model=MODEL, input=items)
    found: list[Any] = [
        item async for item in client.responses.input_items.list(made.id, limit=2, order="asc")
    ]
    assert [item.type for item in found] == ["message"] * 3 + ["function_call", "message"]
    assert [part.text for item in found[:3] for part in item.content] == ["item 0", "item 1", "item 2"]
    assert found[4].id == "mine"
    assert len({item.id for item in found}) == 5
    newest = await client.responses.input_items.list(made.id, limit=1)
    assert newest.data[0].id == "mine", "the newest first"
    text = await client.responses.create(model=MODEL, input="one")
    [only] = (await client.responses.input_items.list(text.id)).data
    assert only.type == "message"
    with pytest.raises(openai.BadRequestError, match="after names no item"):
        await client.responses.input_items.list(text.id, after="nobody")


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"model": 7}, "model", "the name of an endpoint"),
        ({"model": None}, "model", "the name of an endpoint"),
        ({"input": 7}, "input", "a text, or a list"),
        ({"input": []}, "input", "at least 1"),
        ({"input": ["x"]}, "input[0]", "an object"),
        ({"store": 1}, "store", "true or false"),
        ({"background": "yes"}, "background", "true or false"),
        ({"background": True, "store": False}, "background", "needs store"),
        ({"background": True, "stream": True}, "stream", "do not go together"),
        ({"previous_response_id": 7}, "previous_response_id", "a text"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "No such response"),
        ({"previous_response_id": "resp_x", "store": False}, "previous_response_id", "No such response"),
        ({"metadata": {"a": 1}}, "metadata.a", "at most 512"),
    ],
)
async def test_a_body_that_is_wrong_names_the_field(stage: Stage, body: Json, param: str, said: str) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{stage[0].url}/v1/responses", json={"model": MODEL, "input": "x"} | body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 400), (b"[]", 400), (b"[" * 100_000, 400), (b'{"model": "\xff"}', 400), (b" " * (9 << 20), 413)],
)
async def test_a_body_that_is_none_is_refused(stage: Stage, content: bytes, status: int) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{stage[0].url}/v1/responses", content=content)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/responses/resp_x", 404),
        ("DELETE", "/v1/responses/resp_x", 404),
        ("POST", "/v1/responses/resp_x/cancel", 404),
        ("GET", "/v1/responses/resp_x/input_items", 404),
        ("GET", "/v1/responses/resp_x/input_items?limit=101", 400),
        ("GET", "/v1/responses/resp_x?stream=true", 400),
        ("GET", "/v1/responses/resp%00x", 400),
        ("GET", "/v1/responses", 405),
    ],
)
async def test_other_refusals_have_openais_shape(stage: Stage, method: str, path: str, status: int) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.request(method, stage[0].url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_conversation_has_a_bound_in_bytes(stage: Stage) -> None:
    client = stage[0].client
    text = "x" * (1 << 20)
    made = await client.responses.create(model=MODEL, input=text)
    for _ in range(3):
        made = await client.responses.create(model=MODEL, input=text, previous_response_id=made.id)
    with pytest.raises(openai.BadRequestError, match="Begin a new one") as caught:
        await client.responses.create(model=MODEL, input="x", previous_response_id=made.id)
    assert caught.value.code == "conversation_too_long"


async def test_of_a_response_that_finds_no_room_for_its_conversation_nothing_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows its id, so nobody could delete it."""
    monkeypatch.setattr(rooms, "OPEN_BYTES", 1500)
    async with serve_upstream() as upstream, in_process(tmp_path, upstream.url) as (client, service):
        body = {"model": MODEL, "input": "x" * 1000}
        first = (await client.post("/v1/responses", json=body)).json()
        more = {"model": MODEL, "input": "y", "previous_response_id": first["id"]}
        refused = await client.post("/v1/responses", json=more)
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "too_many_responses")
        count, _ = await service.database.read(responses.usage)
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


async def test_all_responses_together_have_a_bound(stage: Stage) -> None:
    client, made = stage[0].client, list[str]()

    async def fill() -> None:
        for _ in range(20):
            made.append((await client.responses.create(model=MODEL, input="y" * (1 << 20))).id)

    with pytest.raises(openai.APIStatusError, match="send store: false") as caught:
        await fill()
    assert (caught.value.status_code, caught.value.code) == (413, "storage_quota_exceeded")
    assert (await client.responses.create(model=MODEL, input="y", store=False)).output_text == "1 y"
    for response_id in made:
        await client.responses.delete(response_id)
    assert (await client.responses.create(model=MODEL, input="y")).output_text == "1 y"


async def test_a_caller_that_leaves_stops_the_work(stage: Stage) -> None:
    process, upstream = stage
    upstream.seconds = 8
    client = process.client
    with contextlib.suppress(openai.APITimeoutError):
        await client.with_options(timeout=0.5).responses.create(model=MODEL, input="nobody waits")
    await happens(lambda: not upstream.now)
    upstream.seconds = 0


async def test_lines_of_a_batch_go_to_the_endpoint_itself(stage: Stage) -> None:
    process, upstream = stage
    url = "/v1/responses"
    content = line("a", url=url, body={"model": MODEL, "input": "one"}).encode()
    batch = await ended(process.client, (await submit(process.client, content, endpoint=url)).id)
    [row] = await rows(process.client, batch.output_file_id)
    assert row["response"]["body"]["id"] == "resp_engine"
    assert upstream.headers[-1]["x-llmendpoint-responses"] == "direct"
