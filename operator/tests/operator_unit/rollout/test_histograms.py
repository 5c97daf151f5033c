"""docs/concepts/rollouts.md: latencies are 95th percentiles over all pods of a revision; a restarted pod does not spoil them."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.histograms import Histogram, quantile, since, together

BOUNDS = (0.1, 0.5, 1.0, math.inf)


def histogram(*counts: float, bounds: tuple[float, ...] = BOUNDS) -> Histogram:
    """From counts that are not cumulative."""
    return Histogram(bounds, tuple(accumulate(counts)))


counts = st.lists(st.integers(0, 1000), min_size=4, max_size=4)
histograms = counts.map(lambda found: histogram(*found))


@pytest.mark.parametrize(
    ("found", "q", "expected"),
    [
        (histogram(10, 10, 0, 0), 0.5, 0.1),  # the rank is the first bucket's last
        (histogram(10, 10, 0, 0), 0.75, 0.3),  # half-way through the second
        (histogram(0, 0, 100, 0), 0.95, 0.975),
        (histogram(20, 0, 0, 0), 0.95, 0.095),  # from 0 in the first bucket
        (histogram(1, 0, 0, 99), 0.95, 1.0),  # +Inf: its lower bound
        (histogram(0, 0, 0, 5), 0.95, 1.0),
        (histogram(0, 0, 0, 0), 0.95, None),
        (Histogram(), 0.95, None),
        (Histogram.of({math.inf: 3}), 0.95, None),
        (Histogram.of({0.1: 3, 0.5: 4}), 0.95, None),  # without +Inf it is none
    ],
)
def test_quantiles_are_those_of_prometheus(found: Histogram, q: float, expected: float | None) -> None:
    assert quantile(q, found) == (None if expected is None else pytest.approx(expected))


@given(histograms, st.floats(0.01, 1), st.floats(0.01, 1))
def test_a_quantile_lies_within_the_bounds_and_grows_with_its_rank(
    found: Histogram, one: float, other: float
) -> None:
    low, high = (quantile(q, found) for q in sorted((one, other)))
    if found.count == 0:
        assert low is None
    else:
        assert low is not None
        assert high is not None
        assert 0 <= low <= high <= 1.0


@given(histograms, histograms)
def test_what_came_since_is_what_was_added(before: Histogram, added: Histogram) -> None:
    assert since(before, together(before, added)) == added


@given(histograms, st.lists(histograms, min_size=1, max_size=5), st.data())
def test_deltas_over_readings_sum_to_all_observations_whatever_restarts_between(
    start: Histogram, steps: list[Histogram], data: st.DataObject
) -> None:
    """A restart loses what came after the last reading; it never counts anything twice."""
    live, read, measured, observed = start, start, Histogram(), Histogram()
    for step in steps:
        if data.draw(st.booleans(), label="restarted"):
            live = histogram(0, 0, 0, 0)
        live = together(live, step)
        measured = together(measured, since(read, live))
        observed = together(observed, step)
        read = live
    assert measured.bounds == observed.bounds == BOUNDS
    assert all(0 <= one <= other for one, other in zip(measured.counts, observed.counts, strict=True))


def test_a_restart_counts_all_that_the_new_process_has_seen() -> None:
    assert since(histogram(5, 5, 5, 5), histogram(1, 2, 0, 0)) == histogram(1, 2, 0, 0)


def test_a_reading_with_other_buckets_is_another_process() -> None:
    other = histogram(9, 9, bounds=(0.2, math.inf))
    assert since(histogram(1, 1, 1, 1), other) == other


@given(counts, st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_sums_grow_with_the_bounds_whatever_is_summed(one: list[int], other: list[int]) -> None:
    total = together(histogram(*one), histogram(*other, bounds=(0.3, 0.5, math.inf)))
    assert total.counts == tuple(sorted(total.counts))
    assert total.count == sum(one) + sum(other)


@given(counts, st.lists(st.integers(0, 1000), min_size=3, max_size=3))
def test_all_that_is_new_is_what_a_pod_with_other_bounds_has_added(one: list[int], other: list[int]) -> None:
    before, added = histogram(*one), histogram(*other, bounds=(0.3, 0.5, math.inf))
    new = since(before, together(before, added))
    assert new.counts == tuple(sorted(new.counts))
    at = dict(zip(new.bounds, new.counts, strict=True))
    assert tuple(at[bound] for bound in added.bounds) == added.counts
