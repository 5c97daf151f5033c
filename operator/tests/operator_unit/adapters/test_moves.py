"""docs/concepts/adapters.md: each pod comes to have what the spec names, and nothing else, whatever fails on the way."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llmendpoint_operator.core.adapters.moves import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    Load,
    Move,
    PodAdapters,
    Unload,
    Wanted,
    due_moves,
    failed,
    next_due,
    said,
    succeeded,
)

SQL, OTHER_SQL, LEGAL = (
    Wanted("sql", "hf://a/sql"),
    Wanted("sql", "hf://a/sql@v2"),
    Wanted("legal", "s3://a/l"),
)


@pytest.mark.parametrize(
    ("held", "wanted", "moves"),
    [
        (None, (SQL,), ()),
        ({}, (), ()),
        ({}, (SQL, LEGAL), (Load(SQL), Load(LEGAL))),
        ({"sql": SQL.source}, (SQL,), ()),
        ({"sql": SQL.source}, (OTHER_SQL,), (Load(OTHER_SQL),)),
        ({"sql": SQL.source, "old": "x"}, (LEGAL,), (Unload("old"), Unload("sql"), Load(LEGAL))),
    ],
)
def test_a_pod_lets_go_first_and_then_loads(
    held: Mapping[str, str] | None, wanted: tuple[Wanted, ...], moves: tuple[Move, ...]
) -> None:
    assert due_moves(wanted, PodAdapters(held), 0.0) == moves


def test_a_failed_load_is_tried_again_after_a_pause_that_doubles_to_a_limit() -> None:
    pod, now, pauses = PodAdapters({}), 0.0, []
    for _ in range(12):
        pod = failed(pod, Load(SQL), "no", now)
        assert due_moves([SQL], pod, now) == ()
        again = next_due([SQL], pod)
        assert again is not None
        pauses.append(again - now)
        now = again
        assert due_moves([SQL], pod, now) == (Load(SQL),)
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S == max(pauses)


def test_an_adapter_that_fails_holds_up_no_other_one() -> None:
    pod = failed(PodAdapters({}), Load(SQL), "no", 0.0)
    assert due_moves([SQL, LEGAL], pod, 0.0) == (Load(LEGAL),)


def test_another_source_is_tried_at_once_and_its_failures_count_anew() -> None:
    pod = failed(PodAdapters({}), Load(SQL), "no", 0.0)
    assert due_moves([OTHER_SQL], pod, 0.0) == (Load(OTHER_SQL),)
    pod = failed(pod, Load(OTHER_SQL), "no", 0.0)
    assert pod.failures["sql"].times == 1


def test_a_failure_is_forgotten_when_the_adapter_is_there_or_not_wanted_any_more() -> None:
    pod = failed(PodAdapters({}), Load(SQL), "no", 0.0)
    assert said(pod, {}, [SQL]).failures
    assert not said(pod, {"sql": SQL.source}, [SQL]).failures
    assert not said(pod, {}, [LEGAL]).failures
    assert not succeeded(pod, Load(SQL)).failures


def test_a_rollout_waits_for_an_adapter_that_may_still_come_and_for_no_other() -> None:
    pod = PodAdapters({})
    assert not pod.settled([SQL])
    once = failed(pod, Load(SQL), "the hub does not answer", 0.0)
    assert not once.settled([SQL])
    assert failed(pod, Load(SQL), "no such adapter", 0.0, refused=True).settled([SQL])
    assert failed(failed(once, Load(SQL), "no", 5.0), Load(SQL), "no", 9.0).settled([SQL])
    assert succeeded(pod, Load(SQL)).settled([SQL])


ADAPTERS = st.lists(
    st.builds(Wanted, st.sampled_from("abcd"), st.sampled_from(("x", "y"))),
    max_size=4,
    unique_by=lambda a: a.name,
)


@given(st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(("x", "y", "z"))), ADAPTERS)
def test_the_moves_make_any_pod_have_what_is_wanted(held: dict[str, str], wanted: list[Wanted]) -> None:
    pod, done = PodAdapters(held), 0
    while moves := due_moves(wanted, pod, 0.0):
        pod, done = succeeded(pod, moves[0]), done + 1
    assert pod.held == {one.name: one.source for one in wanted}
    assert done <= len(held) + len(wanted)
    assert next_due(wanted, pod) is None


class Keeping(RuleBasedStateMachine):
    """A pod, a spec that changes, loads that fail or not, engines that restart, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: dict[str, str] = {}
        self.pod = PodAdapters()
        self.wanted: list[Wanted] = []
        self.now = 0.0
        self.tried: dict[tuple[str, str], list[float]] = {}

    @rule(wanted=ADAPTERS)
    def edit(self, wanted: list[Wanted]) -> None:
        self.wanted = wanted
        self.tried.clear()

    @rule()
    def restart(self) -> None:
        self.engine, self.pod = {}, PodAdapters()
        self.tried.clear()

    @rule(seconds=st.floats(0, 400))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(fails=st.booleans())
    def turn(self, fails: bool) -> None:
        self.pod = said(self.pod, self.engine, self.wanted)
        for move in due_moves(self.wanted, self.pod, self.now):
            if isinstance(move, Load):
                key = (move.adapter.name, move.adapter.source)
                times = self.tried.setdefault(key, [])
                assert not times or self.now >= times[-1] + FIRST_PAUSE_S
                times.append(self.now)
            if fails:
                self.pod = failed(self.pod, move, "no", self.now)
                continue
            if isinstance(move, Load):
                self.tried.pop((move.adapter.name, move.adapter.source))
                self.engine[move.adapter.name] = move.adapter.source
            else:
                self.engine.pop(move.name, None)
            self.pod = succeeded(self.pod, move)

    @invariant()
    def what_is_left_to_do_is_tried_again_in_bounded_time(self) -> None:
        pod = said(self.pod, self.engine, self.wanted)
        again = next_due(self.wanted, pod)
        done = pod.held == {one.name: one.source for one in self.wanted}
        assert (again is None) == done
        assert again is None or again <= self.now + LONGEST_PAUSE_S


TestKeeping = Keeping.TestCase
