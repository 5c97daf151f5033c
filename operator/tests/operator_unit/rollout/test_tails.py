"""docs/concepts/rollouts.md: a latency is judged at bounds of the engines' histograms, on the side that is sure."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.cells import Scales
from llmendpoint_operator.core.rollout.histograms import Histogram
from llmendpoint_operator.core.rollout.tails import KEPT_BOUNDS, SLOWEST, Pair, Tail, comparable, make_tail

FOUR = make_tail(Histogram.of({0.1: 50, 0.5: 90, 1.0: 98, math.inf: 100}), Scales())


def test_a_tail_counts_what_took_longer_than_each_bound() -> None:
    assert FOUR is not None
    assert (FOUR.bounds, FOUR.slower) == ((0.1, 0.5, 1.0), (50, 10, 2))
    assert FOUR.p95 == pytest.approx(0.8125)


def test_nothing_measured_is_no_tail() -> None:
    assert make_tail(Histogram(), Scales()) is None
    assert make_tail(Histogram.of({0.1: 0, math.inf: 0}), Scales()) is None
    assert make_tail(Histogram.of({math.inf: 5}), Scales()) is None


@pytest.mark.parametrize(
    ("limit", "high", "low"), [(0.5, 1, 1), (0.4, 1, 0), (0.05, 0, None), (2.0, None, 2), (0.1 + 1e-12, 0, 0)]
)
def test_a_limit_has_a_bound_on_each_side_or_one_at_it(
    limit: float, high: int | None, low: int | None
) -> None:
    assert FOUR is not None
    assert (FOUR.from_above(limit), FOUR.from_below(limit)) == (high, low)


def test_two_revisions_are_compared_near_the_95th_percentile_at_the_best_fitting_bounds() -> None:
    bounds = (1.0, 1.1, 1.2, 1.3, 1.5, 1.6, 1.8, 2.0, 2.2)
    blue = Tail(1000, bounds, (300, 200, 90, 60, 45, 30, 25, 10, 5), (1.0,) * 9)
    pair = comparable(blue, blue, 1.5)
    assert pair is not None
    assert (bounds[pair.green], bounds[pair.blue]) == (1.8, 1.2), "1.5 exactly; 1.3 and 2.0 would be 1.54"
    assert pair.increase == 0


def test_without_a_bound_near_the_95th_percentile_one_that_the_old_revision_kept_serves() -> None:
    bounds = (0.1, 0.5, 1.0)
    all_at_once = Tail(1000, bounds, (1000, 0, 0), (1.0,) * 3)
    assert comparable(all_at_once, all_at_once, 1.5) == Pair(2, 1, SLOWEST)
    assert comparable(all_at_once, all_at_once, 3) is None, "no bound at 1.5 s"


def test_a_status_holds_the_bounds_nearest_to_the_95th_percentile() -> None:
    bounds = tuple(0.1 * 1.1**i for i in range(80))
    whole = Tail(10_000, bounds, tuple(10_000 * math.exp(-3 * b) for b in bounds), (1.0,) * 80)
    kept = whole.nearest()
    assert len(kept.bounds) == KEPT_BOUNDS
    assert kept.bounds[0] < 1.0 < kept.bounds[-1]
    assert kept.p95 == pytest.approx(whole.p95)


rising = st.lists(st.floats(0.001, 100), min_size=1, max_size=60, unique=True).map(sorted)


@given(rising, st.integers(1, 1000), st.randoms(use_true_random=False), st.floats(1, 3))
def test_what_is_compared_is_never_nearer_than_the_ratio_asks_for(
    bounds: list[float], requests: int, drawn: object, ratio: float
) -> None:
    counts = sorted((drawn.randint(0, requests) for _ in bounds), reverse=True)  # type: ignore[attr-defined]
    one = Tail(requests, tuple(bounds), tuple(map(float, counts)), (1.0,) * len(bounds))
    pair = comparable(one, one, ratio)
    if pair is not None:
        assert one.bounds[pair.green] >= one.bounds[pair.blue] * ratio * (1 - 1e-6)
    assert len(one.nearest().bounds) <= KEPT_BOUNDS
