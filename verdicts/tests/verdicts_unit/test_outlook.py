"""docs/concepts/verdicts.md: how many requests a verdict takes is foreseen, and so is which change would be seen."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_verdicts.outlook import (
    TOLERANCE,
    Outlook,
    Required,
    expected_rate,
    requests_to_compare,
    requests_to_show,
    smallest_increase_seen,
    smallest_seen,
)
from llmendpoint_verdicts.shares import FIRST_CLUMP, Share, above, below, less, more

REQUIRED = Required(math.log(200), math.log(20))
MOST = 6000

rates = st.floats(0.0, 0.6)
limits = st.floats(0.005, 0.3)
margins = st.floats(0.01, 0.3)
numbers = st.integers(0, 400)


def later(share: Share, n: int, rate: float) -> Share:
    """After n requests more, with the clumps that fewer than ten cells of ten requests cannot have shown."""
    requests = share.requests + n
    return Share(requests, share.hits + n * rate, max(1.0, min(FIRST_CLUMP, FIRST_CLUMP * 10 / requests)))


def seen(requests: int, rate: float) -> Share:
    assumed = min(FIRST_CLUMP, 100 / requests) if requests else FIRST_CLUMP
    return Share(requests, requests * rate, max(1.0, assumed))


def near(found: int | None, walked: int | None) -> bool:
    """Within the tolerance of a forecast."""
    if found is None or walked is None:
        return found is walked
    return walked <= found <= walked + max(1.0, TOLERANCE * found) + 1


@given(numbers, rates, limits, margins)
def test_a_forecast_is_what_a_walk_from_request_to_request_finds(
    requests: int, rate: float, limit: float, margin: float
) -> None:
    share = seen(requests, rate)
    found = requests_to_show(share, limit, margin, REQUIRED, most=MOST, rate=rate)
    going = [share, *(later(share, n, rate) for n in range(1, MOST + 1))]
    broken = next((n for n, s in enumerate(going) if above(s, limit) >= REQUIRED.broken), None)
    kept = next((n for n, s in enumerate(going) if below(s, limit + margin) >= REQUIRED.kept), None)
    assert near(found.broken, broken if rate > limit or broken == 0 else None)
    assert near(found.kept, kept if rate < limit + margin or kept == 0 else None)


@given(st.tuples(st.integers(20, 300), rates), st.tuples(st.integers(20, 300), rates), st.floats(0, 0.1))
def test_so_is_a_forecast_about_two_shares_while_both_grow(
    green: tuple[int, float], blue: tuple[int, float], increase: float
) -> None:
    (n, g), (m, b), margin = green, blue, 0.05
    ours, theirs = Share(n, n * g), Share(m, m * b)
    found = requests_to_compare(
        ours, theirs, increase, margin, REQUIRED, most=800, beside=0.5, rates=(g, b), cell=1
    )
    going = [
        (Share(n + k, (n + k) * g), Share(m + k / 2, (m + k / 2) * b))
        for k in range(0, 801, 1 if n < 50 else 7)
    ]
    worse = any(more(*pair, increase) >= REQUIRED.broken for pair in going)
    kept = any(less(*pair, increase + margin) >= REQUIRED.kept for pair in going)
    assert (found.broken is not None, found.kept is not None) == (worse, kept)
    if found.kept:
        k = found.kept
        at = Share(n + k, (n + k) * g), Share(m + k / 2, (m + k / 2) * b)
        assert less(*at, increase + margin) >= REQUIRED.kept


def kept_beside(blue: Share, beside: float) -> int | None:
    both = (0.025, 0.025)
    return requests_to_compare(Share(), blue, 0.0, 0.03, REQUIRED, most=3000, beside=beside, rates=both).kept


def test_few_requests_of_the_old_revision_are_not_enough_unless_it_gets_more() -> None:
    few, many = Share(40, 1), Share(2000, 50)
    assert kept_beside(few, beside=0.0) is None
    assert kept_beside(many, beside=0.0) is not None
    assert kept_beside(few, beside=1.0) is not None


@given(numbers, limits, st.floats(0.0, 0.1))
def test_a_wider_margin_takes_no_more_requests(requests: int, limit: float, rate: float) -> None:
    found = [
        requests_to_show(seen(requests, rate), limit, margin, REQUIRED, most=MOST, rate=rate).kept
        for margin in (0.01, 0.03, 0.1, 0.3)
    ]
    kept = [math.inf if n is None else n for n in found]
    assert all(b <= a * (1 + TOLERANCE) + 1 for a, b in pairwise(kept))


@given(numbers, rates, margins)
def test_a_higher_limit_is_broken_no_earlier_and_kept_no_later(
    requests: int, rate: float, margin: float
) -> None:
    found = [
        requests_to_show(seen(requests, rate), limit, margin, REQUIRED, most=MOST, rate=rate)
        for limit in (0.01, 0.03, 0.1, 0.3)
    ]
    broken = [math.inf if o.broken is None else o.broken for o in found]
    kept = [math.inf if o.kept is None else o.kept for o in found]
    assert all(b >= a / (1 + TOLERANCE) - 1 for a, b in pairwise(broken))
    assert all(b <= a * (1 + TOLERANCE) + 1 for a, b in pairwise(kept))


@given(st.integers(10, 20_000), limits)
def test_more_requests_show_a_smaller_change_and_a_higher_limit_a_larger_one(n: int, limit: float) -> None:
    def found(requests: float, limit: float) -> float:
        return smallest_seen(requests, limit, REQUIRED.broken) or math.inf

    assert found(2 * n, limit) <= found(n, limit) + 1e-6
    assert found(n, limit) <= found(n, limit * 1.2) + 1e-6
    assert found(n, limit) > limit


def test_a_change_that_is_said_to_be_seen_is_seen_in_nineteen_of_twenty_rollouts() -> None:
    share = smallest_seen(600, 0.02, REQUIRED.broken)
    assert share is not None
    needed = next(hits for hits in range(601) if above(Share(600, hits), 0.02) >= REQUIRED.broken)
    missed = sum(math.comb(600, k) * share**k * (1 - share) ** (600 - k) for k in range(needed))
    assert 0.02 <= missed <= 0.08


def test_an_increase_over_few_requests_of_the_old_revision_has_to_be_larger() -> None:
    few = smallest_increase_seen(600, Share(60, 0.6), 0.01, REQUIRED.broken)
    many = smallest_increase_seen(600, Share(6000, 60), 0.01, REQUIRED.broken)
    assert few is not None
    assert many is not None
    assert 0.02 < many < few


def test_too_few_requests_show_nothing() -> None:
    assert smallest_seen(2, 0.3, REQUIRED.broken) is None


def test_what_is_shown_takes_no_more_requests() -> None:
    assert requests_to_show(Share(1000, 100), 0.02, 0.03, REQUIRED, most=MOST).broken == 0
    assert requests_to_show(Share(1000, 1), 0.02, 0.03, REQUIRED, most=MOST).kept == 0
    assert Outlook(None, 40).first == 40
    assert Outlook(None, None).first is None


def test_one_failure_is_not_taken_for_the_rate_of_all_that_follow() -> None:
    assert expected_rate(Share(1, 1)) < 0.05
    assert expected_rate(Share(10_000, 100)) == pytest.approx(0.01, rel=0.01)


def test_a_limit_of_zero_is_broken_by_the_first_failure_and_kept_within_its_margin() -> None:
    none = requests_to_show(Share(50, 0, 2.0), 0.0, 0.03, REQUIRED, most=MOST)
    assert none.broken is None
    assert none.kept is not None
    assert requests_to_show(Share(50, 1, 2.0), 0.0, 0.03, REQUIRED, most=MOST).broken == 0
    assert requests_to_show(Share(), 0.0, 0.03, REQUIRED, most=MOST, rate=0.01).broken == 100


def test_clumps_that_were_measured_stay_and_those_that_were_assumed_go() -> None:
    measured = requests_to_show(Share(200, 2, 5.0), 0.02, 0.03, REQUIRED, most=MOST, rate=0.01)
    assumed = requests_to_show(Share(20, 0, 5.0), 0.02, 0.03, REQUIRED, most=MOST, rate=0.01)
    assert measured.kept is not None
    assert assumed.kept is not None
    assert measured.kept > 2 * assumed.kept
