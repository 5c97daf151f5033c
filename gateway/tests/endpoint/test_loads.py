"""docs/concepts/gateway.md: a replica's load is read every 200 ms while it is used; an old reading is unknown, never "idle"."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.endpoint.loads import (
    BUSY_PERIOD,
    BUSY_SECONDS,
    FIRST_LIMIT,
    IDLE_PERIOD,
    MISSED,
    SHORTEST_SECONDS,
    Load,
    Loads,
    parse_load,
)

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ANSWER = {
    "running": 3,
    "waiting": 1,
    "kv_usage": 0.5,
    "max_num_seqs": 8,
    "outstanding_tokens": 90,
    "instance": "x",
}
LOAD = Load(3, 1, 0.5, 8, 90)


def loads(*addresses: str, limited: bool = False) -> Loads:
    found = Loads()
    for address in addresses:
        found.put(address, 0.0, limited=limited)
    return found


@pytest.mark.parametrize(
    ("document", "load"),
    [
        (ANSWER, LOAD),
        (ANSWER | {"kv_usage": 1}, Load(3, 1, 1.0, 8, 90)),
        (ANSWER | {"max_num_seqs": 0}, None),  # it has not loaded its model yet
        (ANSWER | {"waiting": -1}, None),
        (ANSWER | {"waiting": "1"}, None),
        (ANSWER | {"kv_usage": 1.5}, None),
        ({"server_load": 4}, None),  # another engine's
        ([], None),
        (None, None),
    ],
)
def test_what_is_read_of_an_answer(document: Any, load: Load | None) -> None:
    assert parse_load(document) == load


def test_a_new_replica_is_asked_at_once_then_seldom_and_often_once_it_has_requests() -> None:
    readings = loads(A)
    assert readings.due(0.0, (), 9) == [A]
    readings.note(A, LOAD, 0.1)
    assert readings.due(IDLE_PERIOD, (), 9) == []
    assert readings.due(IDLE_PERIOD + 0.1, (), 9) == [A]
    readings.note(A, LOAD, 6.0)
    readings.touched.add(A)
    assert readings.due(6.2, (), 9) == [A]
    readings.note(A, LOAD, 6.2)
    assert readings.due(6.2 + BUSY_PERIOD, (), 9) == [A]
    readings.note(A, LOAD, 6.2 + BUSY_SECONDS)
    assert readings.due(6.3 + BUSY_SECONDS + BUSY_PERIOD, (), 9) == []


def test_nobody_is_asked_twice_at_once_and_the_longest_due_come_first() -> None:
    readings = loads(A)
    readings.put(B, 1.0)
    assert readings.due(1.0, (), 1) == [A]
    assert readings.due(2.0, (), 9) == [B]
    assert readings.due(99.0, [A, B], 9) == []
    assert not readings.note(A, None, 99.0)
    assert readings.due(99.0 + BUSY_PERIOD, [A], 9) == [A]


def test_a_reading_that_is_not_renewed_becomes_unknown_and_never_zero() -> None:
    readings = loads(A)
    readings.due(0.0, [A], 9)
    assert readings.note(A, LOAD, 0.0)
    assert not readings.note(A, LOAD, 0.1)
    assert readings.of(A) == (LOAD, 0.1)
    assert not readings.note(A, None, 1.0)
    assert readings.expire(SHORTEST_SECONDS) == []
    assert readings.expire(0.1 + SHORTEST_SECONDS) == [A]
    assert readings.of(A) is None
    assert readings.expire(99.0) == []


def test_a_replica_that_stops_answering_keeps_its_limit_and_is_known_again_when_it_answers() -> None:
    readings = loads(A, limited=True)
    readings.note(A, LOAD, 1.0)
    readings.limits[A] = 3
    readings.missed(A, 2.0)
    assert readings.expire(99.0) == [A]
    assert (readings.of(A), readings.limits) == (None, {A: 3})
    readings.note(A, None, 99.0)  # it answers, though with an error
    assert readings.limits == {A: 3}
    assert readings.note(A, LOAD, 99.2)


def test_an_engine_without_a_load_has_no_limit_and_one_that_has_not_answered_yet_its_first() -> None:
    readings = loads(A, B, limited=True)
    assert readings.due(0.0, (), 9) == [A, B]
    readings.missed(A, 1.0)
    readings.note(B, None, 1.0)
    assert readings.limits == {A: FIRST_LIMIT}
    assert readings.due(1.0 + IDLE_PERIOD, (), 9) == [A, B]


def test_an_idle_replicas_reading_outlives_its_next_readings() -> None:
    readings = loads(A)
    readings.note(A, LOAD, 0.0)
    assert readings.expire(MISSED * IDLE_PERIOD - 0.1) == []
    assert readings.expire(MISSED * IDLE_PERIOD) == [A]


def test_what_left_and_came_back_is_unknown_and_a_late_answer_of_what_left_is_dropped() -> None:
    readings = loads(A)
    readings.note(A, LOAD, 0.0)
    readings.drop(A)
    readings.put(B, 1.0)
    assert not readings.note(A, LOAD, 1.0)
    readings.put(A, 2.0)
    assert readings.of(A) is None


@given(st.lists(st.tuples(st.sampled_from([A, B]), st.booleans(), st.floats(0.01, 6.0)), max_size=40))
def test_while_answers_come_a_reading_never_goes_stale(
    steps: list[tuple[str, bool, float]],
) -> None:
    readings, now = loads(A, B), 0.0
    known: set[str] = set()
    for address, busy, seconds in steps:
        until = now + seconds
        while now < until:
            now += BUSY_PERIOD
            assert readings.expire(now) == []
            for due in readings.due(now, [address] if busy else (), 9):
                readings.note(due, LOAD, now)
                known.add(due)
        assert all(readings.of(a) for a in known)
