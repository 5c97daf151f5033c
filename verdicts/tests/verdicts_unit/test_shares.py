"""docs/concepts/rollouts.md: evidence about a share may be read after every request, and is wrong as rarely as it says."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmendpoint_verdicts.shares import MIXTURE, Share, above, below, clumping, less, more

CERTAIN = math.log(100)


def first_look(share: float, seed: int, most: int = 3000) -> int | None:
    """After how many requests a limit of 2 % is seen to be broken, looking after each."""
    drawn, hits = random.Random(seed), 0
    for requests in range(1, most + 1):
        hits += drawn.random() < share
        if above(Share(requests, hits), 0.02) >= CERTAIN:
            return requests
    return None


def test_a_share_at_its_limit_is_called_broken_in_one_of_a_hundred_runs_at_most_though_each_request_is_looked_at() -> (
    None
):
    wrong = sum(first_look(0.02, seed, 600) is not None for seed in range(200))
    assert wrong <= 4, "200 runs at 1 %: more than 4 in one of twenty series"


@pytest.mark.parametrize(("share", "most"), [(1.0, 3), (0.5, 10), (0.1, 90), (0.05, 500)])
def test_the_further_a_share_is_from_its_limit_the_fewer_requests_show_it(share: float, most: int) -> None:
    found = [first_look(share, seed) for seed in range(40)]
    assert median(math.inf if one is None else one for one in found) <= most


def test_evidence_that_a_share_is_kept_grows_with_the_requests_that_keep_it() -> None:
    few, many = below(Share(20, 0), 0.05), below(Share(100, 0), 0.05)
    assert few < math.log(20) < many
    assert below(Share(100, 5), 0.05) < 0, "at the limit nothing is shown"


def test_two_shares_are_compared_with_the_uncertainty_of_both() -> None:
    green = Share(1000, 100)
    assert more(green, Share(100_000, 5000), 0.0) > CERTAIN
    assert more(green, Share(40, 2), 0.0) < CERTAIN, "5 % of 40 may be 10 % as well"


def test_a_revision_like_the_other_is_shown_to_be_no_worse_within_a_margin_only() -> None:
    one = Share(2000, 100)
    assert less(one, one, 0.03) > math.log(20)
    assert less(one, one, 0.0) < 0


def test_a_clump_tells_as_much_as_one_request() -> None:
    assert above(Share(1000, 100, clumping=10), 0.02) == pytest.approx(above(Share(100, 10), 0.02))


def test_failures_in_tens_are_told_from_as_many_one_by_one() -> None:
    def measured(cells: list[int]) -> float:
        hits, size = sum(cells), 20
        return clumping(size * len(cells), hits, sum(count**2 / size for count in cells), len(cells))

    assert measured([10] + [0] * 19) == pytest.approx(10.2, rel=0.1)
    assert measured([0, 1] * 10) == 1.0


def test_what_a_few_cells_cannot_have_shown_is_assumed() -> None:
    assert clumping(20, 20, 20, 1) == 10.0
    assert clumping(100, 0, 0, 4) == 2.5
    assert clumping(0, 0, 0, 0) == 10.0


counts = st.integers(1, 20_000).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
rates = st.floats(0.001, 0.499)


@given(counts, rates, st.floats(1, 50))
def test_evidence_is_a_number_and_never_for_both_sides(
    counted: tuple[int, int], limit: float, clump: float
) -> None:
    share = Share(*counted, clump)
    broken, kept = above(share, limit), below(share, limit)
    assert not math.isnan(broken)
    assert not math.isnan(kept)
    assert min(broken, kept) <= 0


@given(counts, counts, rates)
def test_evidence_about_two_shares_is_a_number_and_never_for_both_sides(
    green: tuple[int, int], blue: tuple[int, int], increase: float
) -> None:
    worse, kept = more(Share(*green), Share(*blue), increase), less(Share(*green), Share(*blue), increase)
    assert not math.isnan(worse)
    assert not math.isnan(kept)
    assert min(worse, kept) <= 0


@given(counts, rates)
def test_more_hits_are_never_less_evidence_against_a_limit(counted: tuple[int, int], limit: float) -> None:
    requests, hits = counted
    fewer = above(Share(requests, max(0, hits - 1)), limit)
    assert above(Share(requests, hits), limit) >= fewer - 1e-9


counted = st.sampled_from([1, 3, 20, 100, 10_000, 10**7]).flatmap(
    lambda requests: st.builds(
        Share,
        st.just(float(requests)),
        st.sampled_from([0.0, 1.0, requests / 3, requests - 1.0, float(requests)]),
        st.sampled_from([1.0, 10.0]),
    )
)


def likelihood(share: Share, rate: float) -> float:
    requests, hits = share.independent
    return sum(
        count * (math.log(chance) if chance > 0 else -math.inf) if count else 0.0
        for count, chance in ((hits, rate), (requests - hits, 1 - rate))
    )


def mixture(share: Share) -> float:
    """Over all shares, weighted by MIXTURE."""
    (requests, hits), (a, b) = share.independent, MIXTURE
    one, prior = (hits + a, requests - hits + b), (a, b)
    return sum(
        sign * (math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y))
        for sign, (x, y) in ((1, one), (-1, prior))
    )


@example(Share(3, 1, 1.7), Share(100, 1), 0.9)
@example(Share(3, 2), Share(1000, 2), 0.999)
@example(Share(1, 0), Share(10**7, 10**7 - 1), 0.0)
@given(counted, counted, st.sampled_from([0.0, 0.001, 0.03, 0.5, 0.9, 0.999]))
def test_evidence_of_two_shares_is_that_against_the_most_likely_pair_on_the_border(
    green: Share, blue: Share, increase: float
) -> None:
    """The border: pairs that differ by exactly the limit. Found here by ternary search."""
    low, high = 0.0, 1.0 - increase
    both = lambda rate: likelihood(blue, rate) + likelihood(green, min(1.0, rate + increase))  # noqa: E731
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (left, high) if both(left) < both(right) else (low, right)
    border = mixture(green) + mixture(blue) - max(both(low), both(high))
    against = (
        less(green, blue, increase) if green.rate < blue.rate + increase else more(green, blue, increase)
    )
    assert against == pytest.approx(border, rel=1e-6, abs=1e-4)
