"""docs/concepts/responses.md: the `openai` SDK stores, continues, streams, reads and deletes, and a refusal names the field."""

from typing import Any

import httpx
import openai
import pytest

from batch.tests.responding import MODEL, Stage, until
from batch.tests.upstream import Json, error

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_an_answer_is_stored_and_read_again(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    made = await process.client.responses.create(model=MODEL, input="one", metadata={"team": "red"})
    assert made.output_text == "1 eno"
    assert made.id.startswith("resp_")
    assert made.id != "resp_engine"
    assert await process.client.responses.retrieve(made.id) == made
    assert made.metadata == {"team": "red"}
    assert upstream.bodies[-1]["store"] is False
    assert upstream.headers[-1]["x-llmendpoint-responses"] == "direct"
    assert "x-llmendpoint-priority" not in upstream.headers[-1]


async def test_what_is_not_to_be_stored_is_not(responses_stage: Stage) -> None:
    client = responses_stage[0].client
    made = await client.responses.create(model=MODEL, input="one", store=False)
    assert made.id == "resp_engine"
    with pytest.raises(openai.NotFoundError, match="No such response") as caught:
        await client.responses.retrieve(made.id)
    assert caught.value.code == "response_not_found"


async def test_a_response_continues_another_whatever_was_said_before(responses_stage: Stage) -> None:
    process, upstream = responses_stage
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


async def test_a_stream_passes_and_its_end_is_stored(responses_stage: Stage) -> None:
    client = responses_stage[0].client
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


async def test_a_stream_that_breaks_is_a_failed_response(responses_stage: Stage) -> None:
    client = responses_stage[0].client
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


async def test_a_stream_whose_caller_leaves_is_cancelled(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    upstream.seconds = 4
    stream = await process.client.responses.create(model=MODEL, input="a long story", stream=True)
    first: Any = await anext(aiter(stream))
    await stream.close()
    assert (await until(process.client, first.response.id)).status == "cancelled"
    upstream.seconds = 0


async def test_an_error_counts_items_as_the_caller_does(responses_stage: Stage) -> None:
    process, upstream = responses_stage
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


async def test_input_items_come_in_pages(responses_stage: Stage) -> None:
    client = responses_stage[0].client
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
        ({"previous_response_id": 7}, "previous_response_id", "a text"),
        ({"previous_response_id": "resp_\0x"}, "previous_response_id", "a text"),
        ({"previous_response_id": "resp_x"}, "previous_response_id", "No such response"),
        ({"previous_response_id": "resp_x", "store": False}, "previous_response_id", "No such response"),
        ({"metadata": {"a": 1}}, "metadata.a", "at most 512"),
    ],
)
async def test_a_body_that_is_wrong_names_the_field(
    responses_stage: Stage, body: Json, param: str, said: str
) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.post(
            f"{responses_stage[0].url}/v1/responses", json={"model": MODEL, "input": "x"} | body
        )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("content", "status"),
    [(b"", 400), (b"[]", 400), (b"[" * 100_000, 400), (b'{"model": "\xff"}', 400), (b" " * (9 << 20), 413)],
)
async def test_a_body_that_is_none_is_refused(responses_stage: Stage, content: bytes, status: int) -> None:
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{responses_stage[0].url}/v1/responses", content=content)
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
