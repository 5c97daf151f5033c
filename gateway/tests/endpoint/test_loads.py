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
    MOST_A_SECOND,
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


def busy_for(readings: Loads, addresses: list[str], start: float, seconds: float) -> tuple[float, int]:
    """Read as the picker does, with answers after 50 ms; returns the oldest age of a reading at the end, and how many went stale."""
    now, stale = start, 0
    answers: list[str] = []
    while now < start + seconds:
        for address in answers:
            readings.note(address, LOAD, now)
        answers = readings.due(now, addresses, int(MOST_A_SECOND * BUSY_PERIOD))
        stale += len(readings.expire(now))
        now += BUSY_PERIOD
    for address in answers:
        readings.note(address, LOAD, now)
    read = [readings.of(address) for address in addresses]
    return max(now - found[1] for found in read if found), stale


def test_of_5000_busy_replicas_each_is_read_before_it_is_stale_and_the_lag_is_told() -> None:
    many = [f"10.0.{n // 250}.{n % 250}:8000" for n in range(5000)]
    readings = loads(*many)
    oldest, stale = busy_for(readings, many, 0.0, 10.0)
    assert stale == 0
    assert oldest <= 5000 / MOST_A_SECOND + 2 * BUSY_PERIOD
    assert 2.0 < readings.lag < 3.0
    for address in many[1000:]:
        readings.drop(address)
    _, stale = busy_for(readings, many[:1000], 10.0, 10.0)
    assert readings.lag < BUSY_PERIOD + 1e-6
    assert stale == 0


def test_replicas_that_get_busy_all_at_once_lose_no_reading() -> None:
    many = [f"10.0.{n // 250}.{n % 250}:8000" for n in range(5000)]
    readings = loads(*many)
    assert busy_for(readings, many[:100], 0.0, 20.0)[1] == 0
    assert busy_for(readings, many, 20.0, 10.0)[1] == 0


def test_a_pause_of_the_picker_makes_no_reading_stale_before_its_replica_could_answer() -> None:
    readings = loads(A, B)
    busy_for(readings, [A, B], 0.0, 2.0)
    assert readings.due(7.0, [A, B], 9) == [A, B]
    assert readings.expire(7.0) == []
    readings.note(A, LOAD, 7.3)
    for turn in range(60):
        readings.note(A, LOAD, 7.4 + turn / 5)
        readings.due(7.4 + turn / 5, [A, B], 9)
        if readings.expire(7.4 + turn / 5) == [B]:
            break
    assert readings.of(A)
    assert readings.of(B) is None  # it never answered, and that is found out soon
    assert turn < 50
