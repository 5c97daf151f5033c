"""docs/concepts/gateway.md, "Where the prefix lies": between two readings the gateway counts what it sends itself."""

from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.placement.outstanding import Outstanding

A = "10.0.0.1:8000"


def test_a_replica_that_never_reported_has_no_known_load() -> None:
    outstanding = Outstanding()
    outstanding.send(A, 10)
    assert outstanding.tokens == {}


def test_what_is_sent_is_added_until_an_answer_to_a_later_question_contains_it() -> None:
    outstanding = Outstanding()
    outstanding.ask(A)
    outstanding.note(A, 100)
    outstanding.send(A, 10)
    outstanding.ask(A)
    outstanding.send(A, 7)
    assert outstanding.tokens == {A: 117}
    outstanding.note(A, 110)
    assert outstanding.tokens == {A: 117}
    outstanding.ask(A)
    outstanding.note(A, 50)
    assert outstanding.tokens == {A: 50}


def test_what_ends_before_the_replica_is_asked_is_taken_back_and_later_the_answer_tells() -> None:
    outstanding = Outstanding()
    outstanding.ask(A)
    outstanding.note(A, 0)
    short, long = outstanding.send(A, 10), outstanding.send(A, 20)
    outstanding.end(A, short)
    assert outstanding.tokens == {A: 20}
    outstanding.ask(A)
    outstanding.end(A, long)
    assert outstanding.tokens == {A: 20}  # the answer may come from before its end
    outstanding.note(A, 0)
    assert outstanding.tokens == {A: 0}


def test_a_stale_reading_is_no_load_and_a_dropped_replica_begins_anew() -> None:
    outstanding = Outstanding()
    outstanding.ask(A)
    outstanding.note(A, 5)
    sent = outstanding.send(A, 10)
    outstanding.expire(A)
    assert outstanding.tokens == {}
    outstanding.drop(A)
    outstanding.ask(A)
    outstanding.note(A, 3)
    outstanding.end(A, sent)
    assert outstanding.tokens == {A: 3}


@given(st.lists(st.tuples(st.sampled_from(["send", "end", "ask", "note", "miss"]), st.integers(1, 50))))
def test_after_two_more_readings_nothing_is_left_but_what_the_replica_reports(
    steps: list[tuple[str, int]],
) -> None:
    outstanding, sent = Outstanding(), []
    for what, tokens in steps:
        if what == "send":
            sent.append(outstanding.send(A, tokens))
        elif what == "end" and sent:
            outstanding.end(A, sent.pop(tokens % len(sent)))
        elif what == "ask":
            outstanding.ask(A)
        elif what == "note":
            outstanding.note(A, tokens)
        assert all(count >= 0 for count in outstanding.tokens.values())
    for _ in range(2):
        outstanding.ask(A)
        outstanding.note(A, 9)
    for one in sent:
        outstanding.end(A, one)
    assert outstanding.tokens == {A: 9}
