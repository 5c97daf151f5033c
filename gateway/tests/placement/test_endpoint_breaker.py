"""docs/concepts/gateway.md: an endpoint's breaker opens at the error rate, sends single trials, and closes after good answers."""

from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmendpoint_gateway.core.endpoint.endpoint_settings import CircuitSettings
from llmendpoint_gateway.core.placement.endpoint_breaker import TRIALS, Cause, Circuits
from llmendpoint_gateway.core.placement.trials import (
    BARRED_SECONDS,
    MOST_TRIALS,
    QUIET_SECONDS,
    REPORT_SECONDS,
    Standing,
)

A = "team/a"
CLOSED, OPEN, HALF_OPEN = Standing.CLOSED, Standing.OPEN, Standing.HALF_OPEN
SETTINGS = CircuitSettings(error_rate=0.5, window=30, min_requests=20, open_seconds=10)
TICKETS = count(1)


def requests(circuits: Circuits, good: int, bad: int, now: float = 0.0) -> bool:
    """So many end; whether one of the bad ones opened the breaker."""
    opened = False
    for _ in range(good + bad):
        circuits.ended(A, now)
    for _ in range(bad):
        opened = circuits.failed(A, now, SETTINGS) or opened
    return opened


def standing(circuits: Circuits, now: float) -> Standing:
    return circuits.state(A, now).standing


def trial(circuits: Circuits, good: bool, now: float) -> Standing | None:
    assert circuits.wait(A, now) == 0
    circuits.trial_began(A, now)
    assert circuits.wait(A, now) > 0
    circuits.trial_ended(A, now)
    return circuits.tried(A, good, now, ticket=next(TICKETS))


@pytest.mark.parametrize(
    ("good", "bad", "opens"),
    [(0, 19, False), (0, 20, True), (11, 9, False), (10, 10, True), (1000, 999, False), (0, 0, False)],
)
def test_it_opens_at_the_error_rate_and_not_below_the_volume(good: int, bad: int, opens: bool) -> None:
    circuits = Circuits(0.0)
    assert requests(circuits, good, bad) is opens
    assert standing(circuits, 0.0) is (OPEN if opens else CLOSED)


def test_what_is_older_than_the_window_does_not_count() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 1000, 0, now=0.0)
    assert not requests(circuits, 0, 19, now=SETTINGS.window + 1)
    assert requests(circuits, 0, 1, now=SETTINGS.window + 2)
    circuits = Circuits(0.0)
    requests(circuits, 0, 19, now=0.0)
    assert not requests(circuits, 0, 19, now=SETTINGS.window + 1)


def test_it_tells_since_when_it_is_open_and_at_which_figures() -> None:
    circuits = Circuits(5.0)
    assert circuits.state(A, 6.0).since == 5.0
    requests(circuits, 10, 10, now=7.0)
    state = circuits.state(A, 8.0)
    assert (state.standing, state.since, state.requests, state.errors) == (OPEN, 7.0, 20, 10)
    assert circuits.openings == {Cause.ERRORS: 1, Cause.EJECTED: 0}


def test_one_at_a_time_tries_and_some_good_answers_in_a_row_close_it() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 0, 20)
    assert circuits.wait(A, 4.0) == 6.0
    now = SETTINGS.open_seconds
    assert standing(circuits, now) is HALF_OPEN
    for _ in range(TRIALS - 1):
        assert trial(circuits, good=True, now=now) is None
    assert trial(circuits, good=True, now=now) is CLOSED
    assert A not in circuits.open
    assert not requests(circuits, 0, 19, now=now)  # it begins with nothing


def test_a_stream_of_which_envoy_tells_every_second_is_one_good_answer() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 0, 20)
    circuits.trial_began(A, 10.0)
    for second in range(2 * TRIALS):
        assert circuits.tried(A, True, 11.0 + second, ticket=0) is None
    circuits.trial_ended(A, 20.0)
    assert circuits.tried(A, True, 20.0, ticket=0) is None  # its end
    for _ in range(TRIALS - 2):
        assert trial(circuits, good=True, now=21.0) is None
    assert trial(circuits, good=True, now=21.0) is CLOSED


def test_streams_that_go_on_are_counted_once_each_and_do_not_hold_up_the_next() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 0, 20)
    now = SETTINGS.open_seconds
    for stream in range(1, TRIALS):
        assert circuits.wait(A, now) == 0
        circuits.trial_began(A, now)
        now += 1
        for ticket in range(1, stream + 1):
            assert circuits.tried(A, True, now, ticket=ticket) is None
    assert circuits.wait(A, now) == 0
    circuits.trial_began(A, now)
    assert circuits.tried(A, True, now + 1, ticket=TRIALS) is CLOSED


def test_a_trial_that_takes_long_holds_up_nobody_for_more_than_some_seconds() -> None:
    """An answer that is no stream is told of when it is complete: that may take an hour."""
    circuits = Circuits(0.0)
    circuits.all_ejected(A, 0.0, SETTINGS)
    now = SETTINGS.open_seconds
    for _ in range(MOST_TRIALS):
        assert circuits.wait(A, now) == 0
        circuits.trial_began(A, now)
        assert circuits.wait(A, now + QUIET_SECONDS - 0.1) > 0
        now += QUIET_SECONDS
    assert circuits.wait(A, now) > 0
    circuits.trial_ended(A, now)
    assert circuits.wait(A, now + REPORT_SECONDS) == 0


def test_a_bad_answer_opens_it_again_for_as_long_and_the_row_begins_anew() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 0, 20)
    trial(circuits, good=True, now=10.0)
    assert trial(circuits, good=False, now=11.0) is OPEN
    assert circuits.wait(A, 12.0) == 9.0
    for _ in range(TRIALS - 1):
        assert trial(circuits, good=True, now=21.0) is None


def test_one_good_answer_is_enough_where_every_replica_was_ejected() -> None:
    circuits = Circuits(0.0)
    assert circuits.all_ejected(A, 0.0, SETTINGS)
    assert not circuits.all_ejected(A, 1.0, SETTINGS)
    assert trial(circuits, good=True, now=10.0) is CLOSED


def test_a_trial_of_which_nothing_is_heard_makes_way_for_the_next() -> None:
    circuits = Circuits(0.0)
    circuits.all_ejected(A, 0.0, SETTINGS)
    circuits.trial_began(A, 10.0)
    circuits.trial_ended(A, 10.0)  # its client went away
    assert circuits.wait(A, 10.0) > 0
    assert circuits.wait(A, 10.0 + REPORT_SECONDS) == 0


def test_one_that_nobody_asks_for_closes_by_itself() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 0, 20)
    assert circuits.forgotten(SETTINGS.open_seconds + SETTINGS.window - 1) == []
    assert circuits.forgotten(SETTINGS.open_seconds + SETTINGS.window) == [A]


def test_an_endpoint_that_was_deleted_begins_anew() -> None:
    circuits = Circuits(0.0)
    requests(circuits, 0, 20)
    circuits.forget(A)
    assert standing(circuits, 1.0) is CLOSED
    assert A not in circuits.open


class Life(RuleBasedStateMachine):
    """Requests, failures and trials in any order, late, lost or doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.circuits, self.now = Circuits(0.0), 0.0
        self.under_way = 0
        self.quiet_until = 0.0

    @rule(seconds=st.sampled_from([0.01, 1.0, 3.0, 10.0, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(good=st.integers(0, 30), bad=st.integers(0, 30))
    def requests_end(self, good: int, bad: int) -> None:
        before = standing(self.circuits, self.now)
        opened = requests(self.circuits, good, bad, self.now)
        after = standing(self.circuits, self.now)
        assert opened == (before is CLOSED and after is OPEN)
        if bad == 0 or before is not CLOSED:
            assert after is before

    @rule()
    def all_are_ejected(self) -> None:
        self.circuits.all_ejected(A, self.now, SETTINGS)
        assert standing(self.circuits, self.now) is not CLOSED

    @precondition(lambda self: A in self.circuits.open)
    @rule(caller=st.sampled_from([None, 1, 2]))
    def somebody_asks(self, caller: int | None) -> None:
        if caller is not None:
            self.circuits.asked(A, self.now, caller)
        if self.circuits.wait(A, self.now, caller) == 0:
            assert standing(self.circuits, self.now) is HALF_OPEN
            assert self.under_way == 0 or self.now >= self.quiet_until
            self.circuits.trial_began(A, self.now, caller)
            self.under_way += 1
            self.quiet_until = self.now + QUIET_SECONDS
            assert self.under_way <= MOST_TRIALS

    @precondition(lambda self: self.under_way)
    @rule(good=st.sampled_from([True, False, None]), caller=st.sampled_from([None, 1, 2]))
    def a_trial_ends(self, good: bool | None, caller: int | None) -> None:
        self.circuits.trial_ended(A, self.now)
        self.under_way -= 1
        if good is not None:
            self.circuits.tried(A, good, self.now, caller, next(TICKETS))
            if good:
                self.quiet_until = self.now
            else:
                assert standing(self.circuits, self.now) is OPEN
        if A not in self.circuits.open:
            self.under_way = 0  # those that go on are not waited for

    @precondition(lambda self: not self.under_way)
    @rule()
    def a_replica_is_back(self) -> None:
        self.circuits.close(A, self.now)

    @invariant()
    def it_is_open_for_its_time_at_most(self) -> None:
        assert standing(self.circuits, self.now + SETTINGS.open_seconds) is not OPEN

    @invariant()
    def what_is_not_closed_is_listed(self) -> None:
        assert (A in self.circuits.open) == (standing(self.circuits, self.now) is not CLOSED)

    @invariant()
    def a_trial_comes_in_the_end(self) -> None:
        """Whatever the trials under way are about, and whose ever they are."""
        later = self.now + SETTINGS.open_seconds + REPORT_SECONDS + QUIET_SECONDS + BARRED_SECONDS
        if A in self.circuits.open and self.under_way < MOST_TRIALS:
            assert all(self.circuits.wait(A, later, caller) == 0 for caller in (None, 1, 2))


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
