"""docs/concepts/gateway.md: neither one caller's failures nor those of one body open an endpoint's breaker for others."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from llmendpoint_gateway.core.endpoint.endpoint_settings import CircuitSettings
from llmendpoint_gateway.core.outcome.attempt import Outcome
from llmendpoint_gateway.core.placement.distinct import Distinct
from llmendpoint_gateway.core.placement.endpoint_breaker import Circuits
from llmendpoint_gateway.core.placement.replica_breaker import ALONE_SECONDS, Breakers
from llmendpoint_gateway.core.placement.trials import BARRED_SECONDS, QUIET_SECONDS
from llmendpoint_gateway.core.placement.window import GROUPS, LONGEST_WINDOW
from llmendpoint_gateway.core.request.request import Tag

A, CHAT = "10.0.0.1:8000", "team/chat"
ONE, OTHER = 1, 2
SETTINGS = CircuitSettings(error_rate=0.5, window=30, min_requests=20, open_seconds=10)


def test_who_else_uses_an_endpoint_is_known_for_30_seconds_also_after_its_breaker_was_open() -> None:
    circuits = Circuits(0.0)
    ask(circuits, OTHER, good=True)
    circuits.all_ejected(CHAT, 2.0, SETTINGS)
    circuits.close(CHAT, 3.0)
    assert circuits.others(CHAT, ONE, 4.0)
    assert not circuits.others(CHAT, OTHER, 4.0)
    assert circuits.others(CHAT, ONE, ALONE_SECONDS)
    assert not circuits.others(CHAT, ONE, ALONE_SECONDS + 2.0)
    assert not circuits.others("team/unknown", ONE, 4.0)


def ask(circuits: Circuits, caller: int, good: bool, print_: int = 7, now: float = 1.0) -> bool:
    """Whether this opened the breaker."""
    circuits.ended(CHAT, now, caller)
    return not good and circuits.failed(CHAT, now, SETTINGS, caller, print_)


def test_one_caller_that_only_fails_opens_no_breaker_for_one_that_is_answered() -> None:
    circuits = Circuits(0.0)
    ask(circuits, OTHER, good=True)
    assert not any(ask(circuits, ONE, good=False, print_=n) for n in range(1000))


def test_one_failure_of_another_among_a_flood_of_one_callers_opens_nothing() -> None:
    circuits = Circuits(0.0)
    ask(circuits, OTHER, good=True)
    for n in range(100):
        assert not ask(circuits, ONE, good=False, print_=n)
    assert not ask(circuits, OTHER, good=False)


def test_an_endpoint_that_fails_for_two_callers_opens_though_one_asks_far_more() -> None:
    circuits = Circuits(0.0)
    for _ in range(100):
        assert not ask(circuits, ONE, good=False)
    assert not ask(circuits, OTHER, good=False, print_=8)
    assert ask(circuits, OTHER, good=False, print_=8)


@pytest.mark.parametrize("same", [ONE + GROUPS, ONE + GROUPS**3, ONE | 1 << 63])
def test_an_endpoint_that_fails_for_two_callers_opens_though_their_numbers_are_alike(same: int) -> None:
    circuits = Circuits(0.0)
    opened = [
        ask(circuits, (ONE, same)[n % 2], good=False, print_=n) for n in range(3 * SETTINGS.min_requests)
    ]
    assert any(opened)


def test_a_third_caller_who_is_answered_does_not_keep_two_of_like_numbers_from_opening_it() -> None:
    circuits, callers = Circuits(0.0), (ONE, ONE + GROUPS)
    opened = []
    for n in range(3 * SETTINGS.min_requests):
        if n % 4 == 0:
            ask(circuits, OTHER, good=True)
        opened.append(ask(circuits, callers[n % 2], good=False, print_=n))
    assert any(opened)


def test_a_failure_by_chance_beside_a_flood_opens_nothing_though_the_callers_numbers_are_alike() -> None:
    circuits, honest = Circuits(0.0), ONE + GROUPS
    for n in range(400):
        assert not ask(circuits, ONE, good=False, print_=n)
        assert not ask(circuits, honest, good=n % 50 > 0, print_=n)


def test_one_body_opens_no_breaker_however_many_send_it() -> None:
    circuits = Circuits(0.0)
    assert not any(ask(circuits, ONE + n % 5, good=False, print_=7) for n in range(1000))
    assert ask(circuits, ONE, good=False, print_=8)


def test_one_body_and_failures_to_connect_open_it() -> None:
    circuits = Circuits(0.0)
    for _ in range(SETTINGS.min_requests):
        ask(circuits, ONE, good=False)
        circuits.failed(CHAT, 1.0, SETTINGS)
    assert circuits.open


@pytest.mark.parametrize(("bodies", "opens"), [(1, False), (2, True)])
def test_the_only_caller_opens_it_with_two_bodies_that_fail_and_not_with_one(
    bodies: int, opens: bool
) -> None:
    circuits = Circuits(0.0)
    ask(circuits, OTHER, good=True, now=0.0)
    found = [ask(circuits, ONE, False, n % bodies, now=LONGEST_WINDOW + 1.0) for n in range(40)]
    assert any(found) is opens


def test_failures_to_connect_open_it_whoever_asked() -> None:
    circuits = Circuits(0.0)
    opened = []
    for _ in range(SETTINGS.min_requests):
        circuits.ended(CHAT, 1.0, ONE)
        opened.append(circuits.failed(CHAT, 1.0, SETTINGS))
    assert opened[-1]


def test_a_caller_whose_trial_failed_cannot_keep_the_breaker_open() -> None:
    circuits = Circuits(0.0)
    ask(circuits, OTHER, good=True)
    circuits.all_ejected(CHAT, 1.0, SETTINGS)
    now = 1.0 + SETTINGS.open_seconds
    assert circuits.wait(CHAT, now, ONE) == 0
    circuits.trial_began(CHAT, now, ONE)
    circuits.trial_ended(CHAT, now)
    circuits.tried(CHAT, False, now, ONE)
    due = now + SETTINGS.open_seconds
    assert circuits.wait(CHAT, due, ONE) > 0
    assert circuits.wait(CHAT, due, OTHER) == 0


def test_a_caller_whose_trials_take_long_leaves_the_next_to_others() -> None:
    circuits = Circuits(0.0)
    circuits.all_ejected(CHAT, 1.0, SETTINGS)
    now = 1.0 + SETTINGS.open_seconds
    circuits.trial_began(CHAT, now, ONE)
    now += QUIET_SECONDS
    assert circuits.wait(CHAT, now, ONE) == 0  # there is nobody else
    circuits.asked(CHAT, now, OTHER)
    assert circuits.wait(CHAT, now, ONE) > 0
    assert circuits.wait(CHAT, now, OTHER) == 0
    assert circuits.wait(CHAT, now + BARRED_SECONDS, ONE) == 0


def test_a_breaker_that_one_caller_opened_alone_closes_as_soon_as_another_asks() -> None:
    circuits = Circuits(0.0)
    assert any(ask(circuits, ONE, good=False, print_=n) for n in range(SETTINGS.min_requests))
    assert not circuits.asked(CHAT, 2.0, ONE)
    assert circuits.wait(CHAT, 2.0, ONE) > 0
    assert circuits.asked(CHAT, 2.0, OTHER)
    assert not circuits.open
    assert not any(ask(circuits, ONE, good=False, print_=n, now=3.0) for n in range(100))


@pytest.mark.parametrize("failed_by", [ONE, None])
def test_it_closes_also_after_a_trial_of_the_one_caller_and_not_after_a_failure_to_connect(
    failed_by: int | None,
) -> None:
    circuits = Circuits(0.0)
    for n in range(SETTINGS.min_requests):
        ask(circuits, ONE, good=False, print_=n)
    circuits.tried(CHAT, False, 11.0, failed_by)
    assert circuits.asked(CHAT, 12.0, OTHER) is (failed_by is ONE)


def test_a_caller_who_is_refused_bars_the_one_whose_trial_failed_before() -> None:
    circuits = Circuits(0.0)
    circuits.all_ejected(CHAT, 1.0, SETTINGS)
    circuits.tried(CHAT, False, 11.0, ONE)
    due = 11.0 + SETTINGS.open_seconds
    assert circuits.wait(CHAT, due, ONE) == 0  # there is nobody else
    circuits.asked(CHAT, due - 1, OTHER)
    assert circuits.wait(CHAT, due, ONE) > 0
    assert circuits.wait(CHAT, due, OTHER) == 0
    assert circuits.wait(CHAT, due + BARRED_SECONDS, ONE) == 0


def test_who_only_asks_and_who_is_served_for_long_uses_the_endpoint_too() -> None:
    circuits = Circuits(0.0)
    circuits.asked(CHAT, 1.0, OTHER)
    assert circuits.others(CHAT, ONE, 2.0)
    circuits.began(CHAT, OTHER)
    assert circuits.others(CHAT, ONE, 10 * LONGEST_WINDOW)
    assert not circuits.others(CHAT, OTHER, 10 * LONGEST_WINDOW)
    circuits.ended(CHAT, 11 * LONGEST_WINDOW, OTHER)
    assert not circuits.others(CHAT, ONE, 13 * LONGEST_WINDOW)


def test_callers_take_no_memory_however_many_they_are() -> None:
    circuits = Circuits(0.0)
    for caller in range(10_000):
        circuits.asked(CHAT, 1.0, caller)
        circuits.began(CHAT, caller)
        ask(circuits, caller, good=caller % 2 == 0)
    assert not circuits._circuits[CHAT].active
    (slot,) = circuits._circuits[CHAT].window.slots.values()
    assert len(slot) == GROUPS


def test_two_distinct_values_are_known_and_when() -> None:
    seen = Distinct()
    seen.add(ONE, 1.0)
    assert not seen.several(0.0)
    assert not seen.beside(ONE, 0.0)
    assert seen.beside(OTHER, 0.0)
    seen.add(OTHER, 2.0)
    seen.add(OTHER, 9.0)
    assert seen.several(1.0)
    assert seen.last_two(1.0) == (OTHER, ONE)
    assert not seen.several(1.5)
    assert seen.last_two(1.5) is None
    assert seen.beside(OTHER, 1.0)
    assert not seen.beside(OTHER, 1.5)
    assert seen.beside(ONE, 9.0)


class OneAgainstAll(RuleBasedStateMachine):
    """One caller sends whatever fails, at any moment; the others are answered. Nothing opens for them."""

    def __init__(self) -> None:
        super().__init__()
        self.breakers, self.circuits, self.now = Breakers(), Circuits(0.0), 1.0
        self.an_honest_one_asks(OTHER)

    @rule(seconds=st.sampled_from([0.01, 1.0, 29.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.an_honest_one_asks(OTHER)

    @rule(caller=st.integers(OTHER, 40) | st.sampled_from([ONE + GROUPS, ONE + GROUPS**2]))
    def an_honest_one_asks(self, caller: int) -> None:
        self.breakers.ended(A, self.now, trial=False)
        self.circuits.ended(CHAT, self.now, caller)

    @rule(
        count=st.integers(1, 30),
        bodies=st.integers(1, 30),
        outcome=st.sampled_from([Outcome.FAILED, Outcome.TIMED_OUT]),
        late=st.booleans(),
    )
    def the_one_sends_what_fails(self, count: int, bodies: int, outcome: Outcome, late: bool) -> None:
        for number in range(count):
            tag = Tag(number, ONE, number % bodies + 1)
            for ends in (not late, late):
                if ends:
                    self.breakers.ended(A, self.now, trial=False)
                    self.circuits.ended(CHAT, self.now, ONE)
                else:
                    others = self.circuits.others(CHAT, ONE, self.now)
                    self.breakers.report(A, outcome, self.now, trial=False, tag=tag, others=others)
                    self.circuits.failed(CHAT, self.now, SETTINGS, ONE, tag.print_)

    @invariant()
    def everything_is_closed(self) -> None:
        assert not self.breakers.ejected
        assert not self.circuits.open


TestOneAgainstAll = OneAgainstAll.TestCase
TestOneAgainstAll.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


def test_a_probe_every_few_minutes_does_not_keep_a_failing_replica_in_the_pick_of_the_application_beside_it() -> (
    None
):
    circuits = Circuits(0.0)
    circuits.ended(CHAT, 1.0, OTHER)
    assert circuits.others(CHAT, ONE, 1.0 + ALONE_SECONDS - 1)
    assert not circuits.others(CHAT, ONE, 1.0 + ALONE_SECONDS + 1)
