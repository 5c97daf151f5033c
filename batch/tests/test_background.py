"""docs/concepts/responses.md: responses in the background, their bounds, and callers that leave."""

import contextlib
from typing import Any

import httpx
import openai
import pytest

from batch.tests.inputs import line
from batch.tests.responding import MODEL, Stage, happens, until
from batch.tests.running import ended, rows, submit
from batch.tests.upstream import Json, error

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_conversation_whose_part_was_deleted_cannot_be_continued(responses_stage: Stage) -> None:
    client = responses_stage[0].client
    first = await client.responses.create(model=MODEL, input="one")
    second = await client.responses.create(model=MODEL, input="two", previous_response_id=first.id)
    await client.responses.delete(first.id)
    for previous in (first.id, second.id):
        with pytest.raises(openai.BadRequestError, match="No such response") as caught:
            await client.responses.create(model=MODEL, input="x", previous_response_id=previous)
        assert caught.value.param == "previous_response_id"
        assert caught.value.code == "previous_response_not_found"
    assert (await client.responses.retrieve(second.id)).output_text == "3 owt"


async def test_a_background_response_whose_conversation_was_deleted_fails_and_says_so(
    responses_stage: Stage,
) -> None:
    process, upstream = responses_stage
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


async def test_a_background_response_is_queued_and_answered(responses_stage: Stage) -> None:
    process, upstream = responses_stage
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


async def test_the_caller_chooses_the_priority(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    client = process.client.with_options(default_headers={"x-llmendpoint-priority": "high"})
    await client.responses.create(model=MODEL, input="one")
    assert upstream.headers[-1]["x-llmendpoint-priority"] == "high"
    made = await client.responses.create(model=MODEL, input="two", background=True)
    await until(client, made.id)
    assert upstream.headers[-1]["x-llmendpoint-priority"] == "high"


async def test_no_room_is_waited_for_in_the_background_and_told_in_the_foreground(
    responses_stage: Stage,
) -> None:
    process, upstream = responses_stage
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


async def test_a_refusal_of_the_endpoint_is_told_or_ends_a_background_response(
    responses_stage: Stage,
) -> None:
    client = responses_stage[0].client
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


async def test_a_background_response_is_cancelled_and_others_are_not(responses_stage: Stage) -> None:
    process, upstream = responses_stage
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


async def test_a_deleted_response_is_gone_also_while_it_is_computed(responses_stage: Stage) -> None:
    process, upstream = responses_stage
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


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/responses/resp_x", 404),
        ("DELETE", "/v1/responses/resp_x", 404),
        ("POST", "/v1/responses/resp_x/cancel", 404),
        ("GET", "/v1/responses/resp_x/input_items", 404),
        ("GET", "/v1/responses/resp_x/input_items?limit=101", 400),
        ("GET", "/v1/responses/resp_x?stream=true", 404),
        ("GET", "/v1/responses/resp_x?stream=yes", 400),
        ("GET", "/v1/responses/resp_x?stream=true&starting_after=-1", 400),
        ("GET", "/v1/responses/resp_x?starting_after=1", 400),
        ("GET", "/v1/responses/resp%00x", 400),
        ("GET", "/v1/responses", 405),
    ],
)
async def test_other_refusals_have_openais_shape(
    responses_stage: Stage, method: str, path: str, status: int
) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.request(method, responses_stage[0].url + path)
    assert answer.status_code == status
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}


async def test_a_conversation_has_a_bound_in_bytes(responses_stage: Stage) -> None:
    client = responses_stage[0].client
    text = "x" * (1 << 20)
    made = await client.responses.create(model=MODEL, input=text)
    for _ in range(3):
        made = await client.responses.create(model=MODEL, input=text, previous_response_id=made.id)
    with pytest.raises(openai.BadRequestError, match="Begin a new one") as caught:
        await client.responses.create(model=MODEL, input="x", previous_response_id=made.id)
    assert caught.value.code == "conversation_too_long"


async def test_all_responses_together_have_a_bound(responses_stage: Stage) -> None:
    client, made = responses_stage[0].client, list[str]()

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


async def test_a_caller_that_leaves_stops_the_work(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    upstream.seconds = 8
    client = process.client
    with contextlib.suppress(openai.APITimeoutError):
        await client.with_options(timeout=0.5).responses.create(model=MODEL, input="nobody waits")
    await happens(lambda: not upstream.now)
    upstream.seconds = 0


async def test_lines_of_a_batch_go_to_the_endpoint_itself(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    url = "/v1/responses"
    content = line("a", url=url, body={"model": MODEL, "input": "one"}).encode()
    batch = await ended(process.client, (await submit(process.client, content, endpoint=url)).id)
    [row] = await rows(process.client, batch.output_file_id)
    assert row["response"]["body"]["id"] == "resp_engine"
    assert upstream.headers[-1]["x-llmendpoint-responses"] == "direct"
