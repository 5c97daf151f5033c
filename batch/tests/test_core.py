"""docs/concepts/batches.md: batches take turns, busy endpoints are waited for, and a clock that jumps deletes nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_batch.core.bounds import Bounds
from llmendpoint_batch.core.clock import LONGEST_GAP, Saved, begin
from llmendpoint_batch.core.lane import LONGEST_PAUSE, Lane, Refusals
from llmendpoint_batch.core.lines import Fault, Line, read_line
from llmendpoint_batch.core.outcomes import Again, Broken, Keep, Reply, judge, read_retry_after
from llmendpoint_batch.core.records import Status, answer_line, unanswered_line
from llmendpoint_batch.core.status import MOVES, Event, moved
from llmendpoint_batch.core.upload import Gauge, clean_name
from llmendpoint_batch.errors import IllegalMove, Refused


@pytest.mark.parametrize(
    ("result", "before", "verdict"),
    [
        (Reply(200, b"{}"), 0, True),
        (Reply(400, b"{}"), 0, False),
        (Reply(404, b"{}", code="model_not_found"), 0, False),
        (Reply(429, b"{}", retry_after=3.0), 99, Again(busy=True, counts=False, seconds=3.0)),
        (Reply(503, b"{}", retry_after=9e9), 99, Again(busy=True, counts=False, seconds=300.0)),
        (Reply(503, b"{}"), 99, Again(busy=True, counts=False)),
        (Reply(503, b"{}", code="request_refused"), 0, False),
        (Reply(500, b"{}"), 0, Again(busy=True, counts=True)),
        (Reply(500, b"{}"), 4, False),
        (Broken("reset", sent=True), 0, Again(busy=True, counts=True)),
        (Broken("reset", sent=True), 4, False),
        (Broken("no route", sent=False), 99, Again(busy=True, counts=False)),
        (Broken("too long", sent=True, final=True), 0, False),
    ],
)
def test_what_an_answer_means(result: Reply | Broken, before: int, verdict: Again | bool) -> None:
    found = judge(result, before)
    assert found == (Keep(result, verdict) if isinstance(verdict, bool) else verdict)


@pytest.mark.parametrize(
    ("value", "seconds"), [("7", 7.0), (None, None), ("-1", None), ("soon", None), ("1e9", None)]
)
def test_retry_after_is_read_if_it_is_a_number(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value) == seconds


def test_batches_of_an_endpoint_take_turns() -> None:
    lane = Lane(8)
    for batch in (1, 2, 3):
        lane.join(batch)
    assert [lane.turn() for _ in range(5)] == [1, 2, 3, 1, 2]
    lane.leave(3)
    assert [lane.turn() for _ in range(3)] == [1, 2, 1]


def test_a_busy_endpoint_gets_half_as_many_lines_and_none_for_a_while() -> None:
    lane = Lane(8)
    lane.busy(10.0, 4.0, jitter=0)
    lane.busy(10.1, None, jitter=0)
    lane.busy(10.2, 3.0, jitter=0)
    assert lane.limit == 4, "the answers of one moment count once"
    assert lane.seconds(11.0) == 3.0
    lane.busy(14.0, None, jitter=0)
    lane.busy(15.0, None, jitter=0)
    assert lane.seconds(15.0) == 1.0, "twice the first wait"
    for _ in range(20):
        lane.answered()
    assert (lane.limit, lane.seconds(16.0)) == (8, 0.0)


def test_a_line_that_is_refused_while_others_are_answered_waits_alone_and_longer_each_time() -> None:
    refusals = Refusals()
    assert not refusals.again(answers=7), "the endpoint may have no room"
    assert refusals.pause(None, 0) == 0, "it is the next one"
    assert not refusals.again(answers=7), "nobody was answered since"
    assert refusals.pause(3.0, 0) == 3.0, "as the endpoint says"
    assert refusals.pause(None, 0) == 0.5
    assert refusals.again(answers=8)
    assert refusals.pause(None, 0) == 1.0
    for _ in range(50):
        refusals.again(answers=9)
    assert refusals.pause(None, 0) == LONGEST_PAUSE


@given(st.lists(st.sampled_from(["sent", "ended", "busy", "answered"]), max_size=60))
def test_a_lane_has_never_more_lines_than_its_limit_allowed(steps: list[str]) -> None:
    lane, now = Lane(4), 0.0
    for step in steps:
        now += 1.0
        if step == "sent" and lane.seconds(now) == 0:
            lane.sent()
        elif step == "ended" and lane.in_flight:
            lane.ended()
        elif step == "busy":
            lane.busy(now, None, jitter=1)
        elif step == "answered":
            lane.answered()
        assert 0 <= lane.in_flight <= 4
        assert 1 <= lane.limit <= 4
    for _ in range(lane.in_flight):
        lane.ended()
    assert lane.seconds(now + 100) == 0, "it goes on after the longest wait"


@pytest.mark.parametrize(
    ("wall", "age"),
    [(1000.0, 50.0), (1100.0, 150.0), (0.0, 50.0), (1e12, 50.0 + LONGEST_GAP)],
)
def test_a_clock_that_jumps_neither_deletes_nor_expires_anything(wall: float, age: float) -> None:
    origin = begin(Saved(age=50.0, wall=1000.0), wall, monotonic=7.0)
    assert origin.age_at(7.0) == age
    assert origin.age_at(9.0) == age + 2.0


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("event", Event)
def test_only_the_table_moves_a_batch(status: Status, event: Event) -> None:
    if (status, event) in MOVES:
        assert moved(status, event) is MOVES[status, event]
    else:
        with pytest.raises(IllegalMove, match=f"is {status} cannot be {event}"):
            moved(status, event)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_line_or_a_fault(text: bytes) -> None:
    assert isinstance(read_line(text, 1, "/v1/completions"), Line | Fault)


@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"\n")), max_size=12))
def test_a_gauge_finds_the_same_whatever_the_pieces(pieces: list[bytes]) -> None:
    bounds = Bounds(file_bytes=200, storage_bytes=1000, lines=8, line_bytes=20)
    text = b"".join(pieces)
    lines = text.split(b"\n")
    count = len(lines) - (not lines[-1])
    good = len(text) <= 200 and count <= 8 and max(map(len, lines)) <= 20
    gauge = Gauge(bounds)
    try:
        for piece in pieces:
            gauge.take(piece, 1000)
    except Refused:
        assert not good
    else:
        assert good


def test_names_are_fit_for_a_terminal() -> None:
    assert clean_name("a\x1b[31m\n.jsonl") == "a_[31m_.jsonl"
    assert clean_name("") == clean_name(None) == "file.jsonl"
    assert len(clean_name("x" * 9999)) == 256


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{\n  "a": 1e4,\n "b": [1,\r\n 2]}', b'"body":{"a":1e4,"b":[1,2]}'),
        (b"<html>\n</html>", b'"body":"<html>\\n</html>"'),
        (b"\xff", '"body":"\ufffd"'.encode()),
        (b'{"a":1e999}', b'"body":"{\\"a\\":1e999}"'),  # no double, so that readers of the file would fail
    ],
)
def test_an_answer_is_one_line_whatever_the_engine_sends(body: bytes, shown: bytes) -> None:
    line = answer_line("batch_1", 3, "x", Reply(200, body, "r"))
    assert shown in line
    assert b"\n" not in line


def test_a_line_without_an_answer_says_why() -> None:
    assert b'"code":"batch_expired"' in unanswered_line("batch_1", 3, "x", Status.EXPIRED)
