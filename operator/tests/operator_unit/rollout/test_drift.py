"""docs/concepts/verdicts.md: blue's figures of the last hours are the baseline for green, as far as they told what came next."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.baseline import FEWEST, SPANS, make_baseline
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limit_evidence import CHANGED_BEFORE, TOO_FEW_BEFORE, find
from llmendpoint_operator.core.rollout.limits import LatencyLimit, Limits
from llmendpoint_operator.core.rollout.tails import Tail
from llmendpoint_operator.observe.rollout.intervals import MOST

from ..figures import figures

EACH = 6000
"""Requests of ten minutes."""


def intervals(rate: Callable[[int], float], number: int = 18, each: int = EACH) -> list[Figures]:
    """By chance, with this share of errors in each."""
    draws = random.Random(7)
    return [Figures(each, sum(draws.random() < rate(at) for _ in range(each))) for at in range(number)]


STEADY = intervals(lambda _: 0.02)
SWINGING = intervals(lambda at: (0.005, 0.035)[at % 2])


def baseline(past: list[Figures], recent: Figures | None) -> Figures:
    found = make_baseline(past, recent)
    assert found is not None
    return found


def test_hours_in_which_nothing_changed_are_a_baseline_of_many_requests() -> None:
    found = baseline(STEADY, Figures(600, 12))
    assert found.requests >= 6 * EACH
    assert found.failed.rate == pytest.approx(0.02, rel=0.05)
    assert found.failed.independent[0] > 2 * EACH


def test_hours_that_changed_count_for_few_requests() -> None:
    found = baseline(SWINGING, Figures(600, 12))
    assert found.drift > 20
    assert found.failed.independent[0] < 300


def test_a_slow_change_is_followed_and_costs_less_than_a_quick_one() -> None:
    slow = baseline(intervals(lambda at: 0.005 + 0.03 * at / 17), Figures(600, 21))
    assert slow.failed.rate > 0.025, "the last hours, not the first ones"
    assert slow.failed.independent[0] > baseline(SWINGING, Figures(600, 12)).failed.independent[0]


@pytest.mark.parametrize("number", [0, 1, 4])
def test_too_short_a_past_leaves_the_last_minutes_as_they_are(number: int) -> None:
    recent = figures(600, 12, ttft=0.1)
    assert make_baseline(STEADY[:number], recent) == recent
    assert make_baseline(STEADY[:number], None) is None


def test_an_outage_of_the_last_minutes_is_the_baseline_and_not_the_good_hours_before() -> None:
    found = baseline(STEADY, Figures(600, 360))
    assert found.failed.rate == 0.6
    assert found.failed.requests == 600


def test_an_outage_that_is_over_is_not_the_baseline() -> None:
    found = baseline(intervals(lambda _: 0.2), Figures(600, 6))
    assert (found.requests, found.errors) == (600, 6)


def test_last_minutes_that_chance_explains_leave_the_hours_to_be_the_baseline() -> None:
    assert baseline([Figures(EACH, 120)] * 18, Figures(600, 29)).requests > 6 * EACH


def test_without_requests_in_the_last_minutes_the_hours_are_the_baseline() -> None:
    assert baseline(STEADY, Figures()).requests >= 6 * EACH


def test_slow_requests_that_come_in_clumps_do_so_over_hours_as_well() -> None:
    past = [Figures(EACH, ttft=Tail(EACH, (0.1, 1.0), (600.0, 300.0)))] * 18
    found = baseline(past, Figures(600, ttft=Tail(600, (0.1, 1.0), (60.0, 30.0), (5.0, 5.0)))).ttft
    assert found is not None
    assert found.requests > 600
    assert found.at(1).clumping == 5.0


def test_failures_that_come_in_clumps_count_as_much_over_hours_as_over_minutes() -> None:
    past = [Figures(EACH, 120)] * 18
    alone, clumped = (baseline(past, Figures(600, 12, clumping=each)).failed for each in (1.0, 5.0))
    assert clumped.independent[0] == alone.independent[0] / 5
    assert clumped.clumping == 5.0


def test_a_latency_drifts_by_itself() -> None:
    def slower(rate: float) -> Tail:
        return Tail(EACH, (0.1, 0.5, 2.0), (0.5 * EACH, rate * EACH, 0.0))

    past = [Figures(EACH, 120, ttft=slower((0.02, 0.09)[at % 2]), itl=slower(0.05)) for at in range(18)]
    found = baseline(past, Figures(600, 12, ttft=slower(0.05), itl=slower(0.05)))
    assert found.ttft is not None
    assert found.itl is not None
    assert found.ttft.drift > 20
    assert found.itl.drift == 1.0
    assert found.itl.requests > 6 * EACH
    assert found.drift == 1.0


def test_intervals_with_other_bounds_are_left_out() -> None:
    old, new = (Tail(EACH, (0.1, bound), (600.0, 300.0)) for bound in (1.0, 2.0))
    recent = Figures(600, 12, ttft=Tail(600, new.bounds, (60.0, 30.0), (1.0, 1.0)))
    few = baseline([Figures(EACH, 120, ttft=old)] * 12 + [Figures(EACH, 120, ttft=new)] * 3, recent)
    assert few.ttft == recent.ttft
    enough = baseline([Figures(EACH, 120, ttft=old)] * 12 + [Figures(EACH, 120, ttft=new)] * 5, recent).ttft
    assert enough is not None
    assert enough.bounds == new.bounds
    assert EACH <= enough.requests <= 5 * EACH


def test_a_limit_that_the_hours_before_make_meaningless_is_not_waited_for_and_says_so() -> None:
    limits = Limits(60.0, error_rate_increase=0.01)
    [few] = find(limits, Figures(600, 12), Figures(10, 0))
    swinging = intervals(lambda at: (0.005, 0.1)[at % 2])
    [changed] = find(limits, Figures(600, 30), baseline(swinging, Figures(600, 30)))
    assert (few.note, changed.note) == (TOO_FEW_BEFORE, CHANGED_BEFORE)


def test_a_revision_that_is_as_bad_as_the_hours_before_were_now_and_then_is_not_rolled_back() -> None:
    limits, bad_hour = Limits(60.0, error_rate_increase=0.005), Figures(EACH, 220)
    [minutes] = find(limits, bad_hour, Figures(EACH, 30))
    [hours] = find(limits, bad_hour, baseline(SWINGING, Figures(EACH, 30)))
    assert minutes.test.broken > limits.required.broken
    assert hours.test.broken < limits.required.broken


def test_a_smaller_slowdown_is_seen_than_with_minutes_alone() -> None:
    ratio = LatencyLimit("TTFT", "TimeToFirstToken", "ttft", lambda found: found.ttft, ratio=1.1)
    limits = Limits(60.0, latencies=(ratio,))
    green = figures(EACH, ttft=0.11)
    assert green.ttft is not None
    slowed = Figures(EACH, ttft=Tail(EACH, (0.1, 0.11), (0.075 * EACH, 0.066 * EACH), (1.0, 1.0)))
    past = [Figures(EACH, ttft=Tail(EACH, (0.1, 0.11), (0.05 * EACH, 0.04 * EACH)))] * 18
    recent = Figures(2000, ttft=Tail(2000, (0.1, 0.11), (100.0, 80.0), (1.0, 1.0)))
    [minutes] = find(limits, slowed, recent)
    [hours] = find(limits, slowed, baseline(past, recent))
    assert hours.test.broken > minutes.test.broken + 2


@pytest.mark.parametrize("at", [3, 9, 16, 17])
@pytest.mark.parametrize("outage", [0.2, 0.5, 1.0])
def test_after_one_outage_of_the_old_revision_one_that_nearly_always_fails_is_still_seen(
    at: int, outage: float
) -> None:
    limits = Limits(60.0, error_rate_increase=0.01)
    past = [Figures(EACH, 30)] * 18
    past[at] = Figures(EACH, int(outage * EACH))
    [found] = find(limits, Figures(100, 97), baseline(past, Figures(600, 3)))
    assert found.test.broken > limits.required.broken


def test_one_request_that_fails_at_night_says_little_of_the_day() -> None:
    night, day = [Figures(1, 0)] * 7 + [Figures(1, 1)], [Figures(EACH, 30)] * 6
    found = baseline(night + day, Figures(600, 3))
    assert found.failed.independent[0] > 100


def test_so_many_intervals_are_kept_that_each_span_is_tested_on_the_past() -> None:
    assert max(SPANS) + FEWEST <= MOST


@st.composite
def pasts(draw: st.DrawFn) -> list[Figures]:
    """Any."""
    number = draw(st.integers(0, 20))
    counts = st.integers(0, 10_000)
    found = []
    for _ in range(number):
        requests = draw(counts)
        errors = draw(st.integers(0, requests))
        slower = sorted((draw(st.integers(0, requests)) for _ in range(3)), reverse=True)
        tail = Tail(float(requests), (0.1, 0.2, 0.4), tuple(map(float, slower))) if requests else None
        found.append(Figures(requests, errors, ttft=tail))
    return found


@given(pasts(), pasts())
def test_a_baseline_never_tells_more_than_all_requests_there_were(
    past: list[Figures], other: list[Figures]
) -> None:
    recent = other[0] if other else None
    found = make_baseline(past, recent)
    if found is None:
        assert recent is None
        return
    most = sum(one.requests for one in past) + (recent.requests if recent else 0)
    assert found.requests <= most
    assert 0 <= found.errors <= found.requests
    assert found.drift >= 1
    assert found.failed.independent[0] <= most
    if found.ttft is not None:
        assert list(found.ttft.slower) == sorted(found.ttft.slower, reverse=True)
        assert found.ttft.drift >= 1
