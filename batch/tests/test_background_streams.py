"""docs/concepts/responses.md: streams in the background are followed from any event on, also by who lost the connection."""

from pathlib import Path
from typing import Any

import openai
import pytest

from batch.tests.responding import MODEL, Stage, happens, until
from batch.tests.running import answering, service
from batch.tests.upstream import Json, error, serve_upstream

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def begun(client: openai.AsyncOpenAI, text: str, events: int) -> tuple[str, list[Any]]:
    """The id, and so many events of a stream that is left then."""
    stream = await client.responses.create(model=MODEL, input=text, background=True, stream=True)
    seen: list[Any] = []
    async for event in stream:
        seen.append(event)
        if len(seen) == events:
            break
    await stream.close()
    return seen[0].response.id, seen


async def rest(client: openai.AsyncOpenAI, response_id: str, after: int | None = None) -> list[Any]:
    given: Any = {} if after is None else {"starting_after": after}
    stream = await client.responses.retrieve(response_id, stream=True, **given)
    return [event async for event in stream]


async def test_a_background_stream_has_numbered_events_and_is_read_again_from_any_of_them(
    responses_stage: Stage,
) -> None:
    process, upstream = responses_stage
    client = process.client
    first = await client.responses.create(model=MODEL, input="one")
    stream = await client.responses.create(
        model=MODEL, input="two", background=True, stream=True, previous_response_id=first.id
    )
    seen: list[Any] = [event async for event in stream]
    types = [event.type for event in seen]
    assert types[:3] == ["response.created", "response.queued", "response.in_progress"]
    assert types[-1] == "response.completed"
    assert types.count("response.created") == 1
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert "".join(e.delta for e in seen if e.type == "response.output_text.delta") == "3 owt"
    last = seen[-1].response
    assert {e.response.id for e in seen if hasattr(e, "response")} == {last.id}
    assert await client.responses.retrieve(last.id) == last
    assert last.background
    assert upstream.headers[-1]["x-llmendpoint-priority"] == "low"
    assert await rest(client, last.id) == seen
    for number in range(len(seen)):
        assert await rest(client, last.id, number) == seen[number + 1 :]


async def test_a_caller_that_left_goes_on_where_it_was(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    client = process.client
    upstream.seconds = 1
    response_id, seen = await begun(client, "a story that is longer", 8)
    assert (await client.responses.retrieve(response_id)).status == "in_progress"
    more = await rest(client, response_id, seen[-1].sequence_number)
    upstream.seconds = 0
    assert more[-1].type == "response.completed"
    assert [*seen, *more] == await rest(client, response_id)
    assert upstream.asked["a story that is longer"] == 1


async def test_a_background_stream_waits_for_room_and_is_followed_by_several(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    client, refused = process.client, 0

    async def busy(body: Json) -> Any:
        nonlocal refused
        refused += 1
        return error(429, "queue_full", **{"retry-after": "1"})

    upstream.answer = busy
    response_id, seen = await begun(client, "patience", 2)
    assert [event.type for event in seen] == ["response.created", "response.queued"]
    assert seen[1].response.status == "queued"
    await happens(lambda: refused > 0)
    upstream.answer = None
    assert await rest(client, response_id) == [*seen, *await rest(client, response_id, 1)]
    assert (await client.responses.retrieve(response_id)).output_text == "1 ecneitap"


@pytest.mark.parametrize(
    ("text", "why"), [("bad", "invalid_value"), ("broken", "The stream of the endpoint broke")]
)
async def test_a_background_stream_that_fails_says_why_and_is_not_sent_again(
    text: str, why: str, responses_stage: Stage
) -> None:
    process, upstream = responses_stage
    before = upstream.asked[text]
    stream = await process.client.responses.create(model=MODEL, input=text, background=True, stream=True)
    seen: list[Any] = [event async for event in stream]
    assert seen[-1].type == "response.failed"
    assert why in seen[-1].response.error.message
    assert [event.sequence_number for event in seen] == list(range(len(seen)))
    assert (len(seen) > 3) == (text == "broken")
    assert await rest(process.client, seen[0].response.id, 1) == seen[2:]
    assert upstream.asked[text] == before + 1


async def test_a_cancelled_background_stream_ends_for_who_follows_it(responses_stage: Stage) -> None:
    process, upstream = responses_stage
    client = process.client
    upstream.seconds = 5
    stream = await client.responses.create(model=MODEL, input="slow", background=True, stream=True)
    seen: list[Any] = []
    async for event in stream:
        seen.append(event)
        if len(seen) == 2:
            await until(client, seen[0].response.id, "in_progress")
            await client.responses.cancel(seen[0].response.id)
    upstream.seconds = 0
    assert [event.type for event in seen] == ["response.created", "response.queued", "response.cancelled"]
    assert seen[-1].response["status"] == "cancelled"
    await happens(lambda: not upstream.now)


async def test_what_cannot_be_followed_is_refused_with_the_field(responses_stage: Stage) -> None:
    client = responses_stage[0].client
    plain = await client.responses.create(model=MODEL, input="one", background=True)
    with pytest.raises(openai.BadRequestError, match="has no events to read") as refused:
        await rest(client, plain.id)
    assert refused.value.param == "stream"
    response_id, _ = await begun(client, "one", 100)
    last = len(await rest(client, response_id)) - 1
    assert await rest(client, response_id, last) == []
    with pytest.raises(openai.BadRequestError, match=f"has the number {last}") as refused:
        await rest(client, response_id, last + 1)
    assert refused.value.param == "starting_after"
    await client.responses.delete(response_id)
    with pytest.raises(openai.NotFoundError):
        await rest(client, response_id)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_after_a_restart_what_was_kept_is_replayed_and_the_end_says_that_it_failed(
    tmp_path: Path, request: pytest.FixtureRequest, kind: str
) -> None:
    url = request.getfixturevalue("postgres").new_database() if kind == "postgres" else ""
    async with serve_upstream() as upstream, service(tmp_path, upstream.url, database=url) as process:
        upstream.seconds = 2
        response_id, seen = await begun(process.client, "a story that is longer", 9)
        waiting = await process.client.responses.create(
            model=MODEL, input="later", background=True, stream=True
        )
        queued: Any = await anext(aiter(waiting))
        await process.kill()
        await process.start()
        await answering(process)
        upstream.seconds = 0
        client = process.client
        more = await rest(client, response_id, seen[-1].sequence_number)
        assert more[-1].type == "response.failed"
        assert "The service ended" in more[-1].response.error.message
        assert [*seen, *more] == await rest(client, response_id)
        assert (await client.responses.retrieve(response_id)).status == "failed"
        assert upstream.asked["a story that is longer"] == 1, "it is not told otherwise"
        last = (await rest(client, queued.response.id))[-1]
        assert last.type == "response.completed", "nobody had seen more than that it waits"
        assert last.response.output_text == "1 retal"
