"""docs/concepts/gateway.md: a replica whose requests fail is ejected for a while, gets single trials, and returns with a good answer."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llmendpoint_gateway.core.outcome.attempt import Outcome, read_outcome
from llmendpoint_gateway.core.placement.replica_breaker import (
    AMONG,
    EJECTION_SECONDS,
    FAILURES,
    FIRST_SECONDS,
    FORGIVEN_SECONDS,
    LONGEST_SECONDS,
    MISSES,
    Breakers,
)
from llmendpoint_gateway.core.placement.trials import (
    BARRED_SECONDS,
    MOST_TRIALS,
    QUIET_SECONDS,
    REPORT_SECONDS,
    Standing,
)

A, B = "10.0.0.1:8000", "10.0.0.2:8000"
ANSWERED, FAILED, UNREACHABLE = Outcome.ANSWERED, Outcome.FAILED, Outcome.UNREACHABLE
TIMED_OUT = Outcome.TIMED_OUT
CLOSED, OPEN, HALF_OPEN = Standing.CLOSED, Standing.OPEN, Standing.HALF_OPEN


def request(breakers: Breakers, outcome: Outcome, now: float = 0) -> None:
    """One whole request to A; as in Envoy, only what fails is reported."""
    breakers.ended(A, now, trial=False)
    if outcome is not ANSWERED:
        breakers.report(A, outcome, now, trial=False)


def trial(breakers: Breakers, outcome: Outcome, now: float) -> None:
    assert breakers.wants_trial(A, now)
    breakers.trial_began(A, now)
    breakers.ended(A, now, trial=True)
    breakers.report(A, outcome, now, trial=True)


@pytest.mark.parametrize(
    ("status", "flags", "outcome"),
    [
        (0, {"unreachable"}, UNREACHABLE),
        (0, {"timed_out"}, TIMED_OUT),
        (504, {"timed_out"}, TIMED_OUT),
        (0, {"broken"}, FAILED),
        (200, {"broken"}, FAILED),  # it broke in the middle of a stream
        (500, set(), FAILED),
        (503, {"retriable"}, ANSWERED),
        (429, set(), ANSWERED),
        (200, set(), ANSWERED),
        (0, set(), None),  # the client went away first
    ],
)
def test_what_an_attempt_says_of_its_replica(status: int, flags: set[str], outcome: Outcome | None) -> None:
    names = ("unreachable", "timed_out", "broken", "retriable")
    assert read_outcome(status, **{name: name in flags for name in names}) is outcome


def test_a_backend_that_cannot_be_connected_to_is_out_of_the_pick_at_once() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    assert breakers.standing(A, 0) is OPEN
    assert breakers.standing(B, 0) is CLOSED
    trial(breakers, UNREACHABLE, FIRST_SECONDS)
    assert breakers.standing(A, FIRST_SECONDS + EJECTION_SECONDS - 1) is OPEN


def test_a_backend_that_times_out_is_out_of_the_pick_before_its_third_timeout() -> None:
    breakers = Breakers()
    request(breakers, TIMED_OUT)
    assert breakers.standing(A, 0) is CLOSED  # it may have been a long one
    request(breakers, TIMED_OUT)
    assert breakers.standing(A, 0) is OPEN
    trial(breakers, TIMED_OUT, EJECTION_SECONDS)
    assert breakers.standing(A, 3 * EJECTION_SECONDS - 1) is OPEN
    trial(breakers, ANSWERED, 3 * EJECTION_SECONDS)
    assert breakers.standing(A, 3 * EJECTION_SECONDS) is CLOSED


def test_a_timeout_now_and_then_among_good_answers_does_not_eject() -> None:
    breakers = Breakers()
    for n in range(50):
        request(breakers, TIMED_OUT if n % 4 == 0 else ANSWERED)
    assert breakers.standing(A, 0) is CLOSED


def test_a_replica_is_hopeless_when_it_is_ejected_for_more_than_one_lost_packet() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    assert not breakers.hopeless(A)
    for _ in range(MISSES - 1):
        request(breakers, UNREACHABLE)
    assert breakers.hopeless(A)
    breakers = Breakers()
    for _ in range(FAILURES):
        request(breakers, FAILED)
    assert breakers.hopeless(A)
    assert not breakers.hopeless(B)


def test_consecutive_errors_eject_and_as_many_spread_over_good_requests_do_not() -> None:
    breakers = Breakers()
    for _ in range(FAILURES - 1):
        request(breakers, FAILED)
    assert breakers.standing(A, 0) is CLOSED
    request(breakers, FAILED)
    assert breakers.standing(A, 0) is OPEN

    breakers = Breakers()
    for n in range(10 * FAILURES):
        request(breakers, FAILED if n % 3 == 0 else ANSWERED)
    assert breakers.standing(A, 0) is CLOSED


def test_errors_that_are_reported_after_many_requests_ended_at_once_eject_too() -> None:
    breakers = Breakers()
    for _ in range(30):
        breakers.ended(A, 0, trial=False)
    for _ in range(30):
        breakers.report(A, FAILED, 0, trial=False)
    assert breakers.standing(A, 0) is OPEN


def test_each_ejection_in_a_row_is_longer_up_to_a_limit_and_a_good_trial_ends_it() -> None:
    breakers, now, lengths = Breakers(), 0.0, []
    for _ in range(FAILURES):
        request(breakers, FAILED)
    for _ in range(12):
        start = now
        while breakers.standing(A, now) is OPEN:
            now += 1
        lengths.append(now - start)
        trial(breakers, FAILED, now)
    assert lengths == [min(EJECTION_SECONDS * n, LONGEST_SECONDS) for n in range(1, 13)]
    now += LONGEST_SECONDS
    trial(breakers, ANSWERED, now)
    assert breakers.standing(A, now) is CLOSED


@pytest.mark.parametrize(("closed_for", "ejections"), [(1.0, 2), (FORGIVEN_SECONDS + 1, 1)])
def test_an_ejection_long_ago_is_forgiven(closed_for: float, ejections: int) -> None:
    breakers = Breakers()
    for _ in range(FAILURES):
        request(breakers, FAILED)
    trial(breakers, ANSWERED, EJECTION_SECONDS)
    now = EJECTION_SECONDS + closed_for
    for _ in range(FAILURES):
        request(breakers, FAILED, now)
    assert breakers.ejections_of(A) == ejections
    assert breakers.standing(A, now + EJECTION_SECONDS * ejections - 1) is OPEN
    assert breakers.standing(A, now + EJECTION_SECONDS * ejections) is HALF_OPEN


def test_half_open_takes_one_trial_at_a_time_and_the_next_when_nothing_came_of_it() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    now = FIRST_SECONDS
    breakers.trial_began(A, now)
    assert not breakers.wants_trial(A, now)
    breakers.ended(A, now, trial=True)  # the client went away: nothing will be reported
    assert not breakers.wants_trial(A, now)
    assert breakers.wants_trial(A, now + REPORT_SECONDS)


def test_a_trial_of_which_nothing_is_known_for_long_lets_the_next_begin_up_to_a_number() -> None:
    """An answer that is no stream is told of when it is complete: that may take an hour."""
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    now = FIRST_SECONDS
    for _ in range(MOST_TRIALS):
        assert breakers.wants_trial(A, now)
        breakers.trial_began(A, now)
        assert not breakers.wants_trial(A, now + QUIET_SECONDS - 0.1)
        now += QUIET_SECONDS
    assert not breakers.wants_trial(A, now + 3600)
    breakers.ended(A, now, trial=True)
    breakers.report(A, ANSWERED, now, trial=True)
    assert breakers.standing(A, now) is CLOSED


def test_a_caller_whose_trial_takes_long_leaves_the_next_to_others() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    breakers.trial_began(A, FIRST_SECONDS, 1)
    now = FIRST_SECONDS + QUIET_SECONDS
    assert breakers.wants_trial(A, now, 1)  # there is nobody else
    breakers.asked([A], now, 2)
    assert not breakers.wants_trial(A, now, 1)
    assert breakers.wants_trial(A, now, 2)
    assert breakers.wants_trial(A, now + BARRED_SECONDS, 1)


def test_a_replica_that_is_ejected_again_waits_neither_for_nor_upon_the_stream_that_brought_it_back() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    breakers.trial_began(A, FIRST_SECONDS)
    assert breakers.report(A, ANSWERED, FIRST_SECONDS, trial=True, over=False) is CLOSED
    request(breakers, UNREACHABLE, FIRST_SECONDS)
    now = 2 * FIRST_SECONDS
    assert breakers.report(A, ANSWERED, now, trial=True, over=False) is None
    assert breakers.wants_trial(A, now)
    breakers.ended(A, now, trial=True)  # the stream
    assert breakers.wants_trial(A, now)


def test_failures_of_requests_that_began_before_the_ejection_do_not_lengthen_it() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    for _ in range(50):
        request(breakers, FAILED, FIRST_SECONDS)
    assert breakers.standing(A, FIRST_SECONDS) is HALF_OPEN
    assert breakers.ejections_of(A) == 0


def test_with_all_ejected_a_good_answer_of_the_least_bad_closes_it_and_a_bad_one_does_not_lengthen_it() -> (
    None
):
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    breakers.report(A, FAILED, 1, trial=True)
    assert breakers.standing(A, FIRST_SECONDS) is HALF_OPEN
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    breakers.report(A, ANSWERED, 1, trial=True)
    assert breakers.standing(A, 1) is CLOSED


def test_a_replica_is_lost_after_some_misses_until_a_trial_is_due_and_found_by_a_good_answer() -> None:
    breakers = Breakers()
    for n in range(MISSES):
        assert not breakers.lost(A, 0)
        breakers.report(A, UNREACHABLE, 0, trial=n > 0)
    assert breakers.lost(A, 0)
    assert not breakers.lost(A, FIRST_SECONDS)
    breakers.report(A, ANSWERED, 1, trial=True)
    breakers.report(A, UNREACHABLE, 1, trial=False)
    assert not breakers.lost(A, 1)


def test_ejections_are_counted_by_cause() -> None:
    breakers = Breakers()
    request(breakers, UNREACHABLE)
    trial(breakers, FAILED, FIRST_SECONDS)
    assert breakers.ejections == {UNREACHABLE: 1, FAILED: 1, TIMED_OUT: 0}


class Life(RuleBasedStateMachine):
    """Requests, trials and their reports in any order, late, lost or doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.breakers, self.now = Breakers(), 0.0
        self.under_way = 0
        self.quiet_until = 0.0

    @rule(seconds=st.sampled_from([0.01, 1.0, FIRST_SECONDS, EJECTION_SECONDS, LONGEST_SECONDS]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(outcome=st.sampled_from(Outcome), late=st.booleans())
    def a_request(self, outcome: Outcome, late: bool) -> None:
        before = self.breakers.standing(A, self.now)
        if late:
            self.breakers.report(A, outcome, self.now, trial=False)
            self.breakers.ended(A, self.now, trial=False)
        else:
            self.breakers.ended(A, self.now, trial=False)
            self.breakers.report(A, outcome, self.now, trial=False)
        after = self.breakers.standing(A, self.now)
        if before is not CLOSED or outcome is ANSWERED:
            assert after is before
        if before is CLOSED and outcome is UNREACHABLE:
            assert after is OPEN

    @rule(caller=st.sampled_from([None, 1, 2]))
    def a_trial_begins(self, caller: int | None) -> None:
        if self.breakers.wants_trial(A, self.now, caller):
            assert self.breakers.standing(A, self.now) is HALF_OPEN
            assert self.under_way == 0 or self.now >= self.quiet_until
            self.breakers.trial_began(A, self.now, caller)
            self.under_way += 1
            self.quiet_until = self.now + QUIET_SECONDS
            assert self.under_way <= MOST_TRIALS

    @rule()
    def a_trial_ends(self) -> None:
        if self.under_way:
            self.breakers.ended(A, self.now, trial=True)
            self.under_way -= 1

    @rule(caller=st.integers(1, 2))
    def somebody_asks(self, caller: int) -> None:
        self.breakers.asked([A], self.now, caller)

    @rule(outcome=st.sampled_from(Outcome))
    def a_trial_is_reported(self, outcome: Outcome) -> None:
        before = self.breakers.standing(A, self.now)
        self.breakers.report(A, outcome, self.now, trial=True)
        after = self.breakers.standing(A, self.now)
        if before is HALF_OPEN:
            assert after is (CLOSED if outcome is ANSWERED else OPEN)
        if after is CLOSED:
            self.under_way = 0  # it may go on, and is not waited for

    @rule()
    def it_leaves_and_comes_back(self) -> None:
        self.breakers.keep(())
        self.under_way = 0
        assert self.breakers.standing(A, self.now) is CLOSED

    @invariant()
    def it_is_out_for_the_longest_time_at_most(self) -> None:
        assert self.breakers.standing(A, self.now + LONGEST_SECONDS) is not OPEN

    @invariant()
    def what_is_not_closed_is_listed(self) -> None:
        assert (A in self.breakers.ejected) == (self.breakers.standing(A, self.now) is not CLOSED)

    @invariant()
    def a_trial_comes_in_the_end(self) -> None:
        """Whatever the trials under way are about, and whose ever they are."""
        later = self.now + LONGEST_SECONDS + QUIET_SECONDS + BARRED_SECONDS
        if A in self.breakers.ejected and self.under_way < MOST_TRIALS:
            assert all(self.breakers.wants_trial(A, later, caller) for caller in (None, 1, 2))

    @invariant()
    def one_that_is_open_is_not_tried(self) -> None:
        if self.breakers.standing(A, self.now) is OPEN:
            assert not self.breakers.wants_trial(A, self.now)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_the_constants_hold_together() -> None:
    assert FAILURES <= AMONG
    assert FIRST_SECONDS < EJECTION_SECONDS < LONGEST_SECONDS
