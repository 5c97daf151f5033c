"""docs/concepts/responses.md: any body is read or refused, and a stream is the same whatever its pieces."""

import json
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_batch.api.rooms import Room
from llmendpoint_batch.core.bounds import OPEN_BYTES, OPEN_REQUESTS
from llmendpoint_batch.core.event_stream import Events, TooLong
from llmendpoint_batch.core.response_items import kept_items, page
from llmendpoint_batch.core.response_object import (
    State,
    Stored,
    final_of,
    shown_response,
    without_earlier_items,
)
from llmendpoint_batch.core.response_request import kept_fields, read_asked, read_priority, upstream_body
from llmendpoint_batch.errors import Refused

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = (
    "model",
    "input",
    "previous_response_id",
    "store",
    "background",
    "stream",
    "metadata",
    "tools",
    "instructions",
)
STORED = Stored(
    "resp_1", State.IN_PROGRESS, "m", 5, False, "", "resp_0", b'{"model":"m","tools":null}', b"[]"
)


def event(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


STREAM = (
    event("response.created", response={"id": "resp_engine", "status": "in_progress"})
    + b": still here\n\n"
    + event("response.output_text.delta", delta="a\u2028b")
    + event(
        "response.completed",
        response={"id": "resp_engine", "status": "completed", "output": [{"type": "message"}]},
    )
    + b"data: [DONE]\n\n"
)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    with pytest.raises(Refused):
        read_asked(text)


@given(
    st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6),
    st.lists(
        st.dictionaries(st.sampled_from(["type", "id", "role", "content", "status"]), JSON, max_size=4),
        max_size=4,
    ),
)
def test_any_json_is_stored_and_sent_or_refused(fields: dict[str, Any], items: list[Any]) -> None:
    body = {"model": "m", "input": items} | {name: v for name, v in fields.items() if name != "input" or v}
    try:
        asked = read_asked(json.dumps(body, allow_nan=False).encode())
    except (Refused, ValueError):
        return
    kept = kept_items(asked, "resp_1")
    ids = [json.loads(bytes(item))["id"] for item in kept]
    assert len(set(ids)) == len(ids), "a page can begin after any item"
    stored = Stored("resp_1", State.QUEUED, "m", 5, asked.background, "", None, kept_fields(asked), b"[]")
    assert json.loads(shown_response(stored))["status"] == "queued"
    sent = json.loads(upstream_body(asked.fields, [], asked.input or []))
    assert sent["store"] is False
    assert sent["input"] == body["input"]
    assert "background" not in sent
    seen: list[str] = []
    while (shown := page(kept, 2, True, seen[-1] if seen else None))["data"]:
        seen += [json.loads(bytes(item))["id"] for item in shown["data"]]
    assert seen == ids


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_is_the_same_whatever_its_pieces(cuts: list[int]) -> None:
    events, places = Events(STORED), [0, *sorted(cuts), len(STREAM)]
    found = [e for at, to in pairwise(places) for e in events.take(STREAM[at:to])]
    whole = b"".join(e.text for e in found)
    assert whole.count(b"\n\n") == 5
    assert b"resp_engine" not in whole
    assert whole.count(b"resp_1") == 2
    assert event("response.output_text.delta", delta="a\u2028b") in whole, "as the engine sent it"
    [final] = [e.final for e in found if e.final is not None]
    assert (final.state, final.output_items) == (State.COMPLETED, 1)


@given(st.lists(st.binary(max_size=30), max_size=10))
def test_any_stream_passes(pieces: list[bytes]) -> None:
    events = Events(STORED)
    for piece in pieces:
        list(events.take(piece))
    assert b"".join(e.text for piece in pieces for e in Events(None).take(piece)) == b"".join(pieces)


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmendpoint_batch.core.event_stream.ANSWER_BYTES", 1000)
    events = Events(STORED)
    with pytest.raises(TooLong):
        list(events.take(b"data: " + b"x" * 1000))


@pytest.mark.parametrize(
    "answer", [b"", b"[]", b"{}", b'{"status": 7}', b'{"status": []}', b'{"status": "queued"}', b'{"status": "completed", "output": 7}',
               b"\xff", b"[" * 100_000]
)  # fmt: skip
def test_an_answer_that_is_no_response_is_none(answer: bytes) -> None:
    assert final_of(STORED, answer) is None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "deep", [b"[" * 5000 + b"]" * 5000, b'{"a":' * 2000 + b"1" + b"}" * 2000, b"[" * 200_000]
)
def test_nesting_is_refused_or_passed_and_breaks_nothing(name: str, deep: bytes) -> None:
    body = b'{"model":"m","input":[{"content":%b}],"%b":%b}' % (deep, name.encode(), deep)
    for text in (body, b'{"model":"m","input":"x","%b":%b}' % (name.encode(), deep)):
        try:
            asked = read_asked(text)
        except Refused:
            continue
        kept_items(asked, "resp_1")
        shown_response(Stored("resp_1", State.QUEUED, "m", 5, True, "", None, kept_fields(asked), b"[]"))


def test_large_numbers_pass_as_they_are() -> None:
    body = b'{"model":"m","input":"x","seed":123456789012345678901234567890,"top_p":0.10000000000000000001}'
    sent = upstream_body(read_asked(body).fields, [], [])
    assert b"123456789012345678901234567890" in sent
    assert b"0.10000000000000000001" in sent


def test_places_of_items_are_the_callers() -> None:
    assert (
        without_earlier_items(b"input[4].role, input[1]", 3)
        == b"input[1].role, an item of previous_response_id"
    )
    assert without_earlier_items(b"input[4]", 0) == b"input[4]"


def test_a_priority_is_one_of_three_words() -> None:
    assert [read_priority(word) for word in (None, "low", "high")] == ["", "low", "high"]
    with pytest.raises(Refused, match="high, normal, low"):
        read_priority("urgent")


def test_ids_of_items_are_kept_if_they_are_the_only_ones() -> None:
    asked = read_asked(
        msgspec.json.encode(
            {"model": "m", "input": [{"id": "a"}, {"id": "a"}, {"id": 7}, {"type": "reasoning"}]}
        )
    )
    ids = [json.loads(bytes(item))["id"] for item in kept_items(asked, "resp_9")]
    assert ids == ["a", "msg_9_1", "msg_9_2", "rs_9_3"]


def test_responses_that_are_open_have_a_bound_in_bytes_and_in_number() -> None:
    room = Room()
    with room.holding() as first, room.holding() as second:
        first.more(OPEN_BYTES - 10)
        second.more(10)
        with pytest.raises(Refused, match="under way") as caught:
            second.more(1)
        assert (caught.value.status, caught.value.code) == (429, "too_many_responses")
    with ExitStack() as all_of_them:
        for _ in range(OPEN_REQUESTS):
            all_of_them.enter_context(room.place())
        with pytest.raises(Refused), room.place():
            pass
    with room.holding() as held, room.place():  # what has ended holds no room
        held.more(OPEN_BYTES)
