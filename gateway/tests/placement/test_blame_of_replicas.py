"""docs/decisions/one-caller-ejects-nobody.md: neither one caller nor one body ejects a replica for others."""

import pytest

from llmendpoint_gateway.core.outcome.attempt import Outcome
from llmendpoint_gateway.core.placement.replica_breaker import (
    EJECTION_SECONDS,
    FAILURES,
    FIRST_SECONDS,
    TIMEOUTS,
    Breakers,
)
from llmendpoint_gateway.core.placement.trials import BARRED_SECONDS, Standing
from llmendpoint_gateway.core.request.request import Tag

A = "10.0.0.1:8000"
ONE, OTHER = 1, 2


def fails(
    breakers: Breakers,
    caller: int,
    print_: int,
    outcome: Outcome = Outcome.FAILED,
    others: bool = False,
) -> Standing | None:
    breakers.ended(A, 1.0, trial=False)
    return breakers.report(A, outcome, 1.0, trial=False, tag=Tag(1, caller, print_), others=others)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_one_callers_one_request_that_always_fails_ejects_no_replica(outcome: Outcome) -> None:
    breakers = Breakers()
    for _ in range(100):
        assert fails(breakers, ONE, 7, outcome=outcome) is None


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_one_callers_various_requests_eject_no_replica_of_an_endpoint_that_others_use(
    outcome: Outcome,
) -> None:
    breakers = Breakers()
    for print_ in range(100):
        assert fails(breakers, ONE, print_, outcome=outcome, others=True) is None


def test_a_single_application_that_is_the_only_caller_gets_rid_of_a_broken_replica() -> None:
    breakers = Breakers()
    for print_ in range(FAILURES - 1):
        assert fails(breakers, ONE, print_) is None
    assert fails(breakers, ONE, 99) is Standing.OPEN


def test_failures_of_two_callers_eject_though_each_asks_the_same_again() -> None:
    breakers = Breakers()
    for _ in range(FAILURES - 1):
        assert fails(breakers, ONE, 7) is None
    assert fails(breakers, OTHER, 8) is Standing.OPEN
    hung = Breakers()
    for caller in (ONE, OTHER)[: TIMEOUTS - 1]:
        assert fails(hung, caller, 7, outcome=Outcome.TIMED_OUT) is None
    assert fails(hung, OTHER, 8, outcome=Outcome.TIMED_OUT) is Standing.OPEN


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT])
def test_one_body_ejects_no_replica_however_many_send_it(outcome: Outcome) -> None:
    breakers = Breakers()
    for number in range(100):
        assert fails(breakers, ONE + number % 5, 7, outcome=outcome, others=True) is None


def test_a_broken_replica_is_ejected_by_its_first_failures_in_a_row_under_ordinary_traffic() -> None:
    breakers = Breakers()
    found = [fails(breakers, ONE + n % 2, 10 + n, others=True) for n in range(FAILURES)]
    assert found == [None] * (FAILURES - 1) + [Standing.OPEN]


def test_a_connection_that_nobody_takes_is_no_callers_fault() -> None:
    assert fails(Breakers(), ONE, 7, outcome=Outcome.UNREACHABLE) is Standing.OPEN


def test_a_caller_whose_trial_failed_leaves_the_next_to_others() -> None:
    breakers = Breakers()
    fails(breakers, OTHER, 7, outcome=Outcome.UNREACHABLE)
    now = 1.0 + FIRST_SECONDS
    breakers.trial_began(A, now, ONE)
    breakers.ended(A, now, trial=True)
    breakers.report(A, Outcome.FAILED, now, trial=True, tag=Tag(1, ONE, 7), others=True)
    due = now + EJECTION_SECONDS
    assert not breakers.wants_trial(A, due, ONE)
    assert breakers.wants_trial(A, due, OTHER)
    assert breakers.wants_trial(A, due + BARRED_SECONDS, ONE)


def test_a_replica_that_one_caller_ejected_alone_is_back_as_soon_as_another_asks() -> None:
    breakers = Breakers()
    for print_ in range(FAILURES):
        fails(breakers, ONE, print_)
    assert not breakers.asked([A], 2.0, ONE)
    assert breakers.ejected
    assert breakers.asked([A], 2.0, OTHER)
    assert not breakers.ejected


def test_a_replica_that_nobody_takes_a_connection_of_or_that_two_ejected_stays_out() -> None:
    unreachable, two = Breakers(), Breakers()
    fails(unreachable, ONE, 7, outcome=Outcome.UNREACHABLE)
    for n in range(FAILURES):
        fails(two, (ONE, OTHER)[n % 2], n)
    for breakers in (unreachable, two):
        assert not breakers.asked([A], 2.0, 3)
        assert breakers.ejected
