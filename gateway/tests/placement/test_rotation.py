"""docs/contribute/contracts.md: new requests are shared by the weights, at any moment right to about one request."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_gateway.core.placement.rotation import Rotation
from llmendpoint_gateway.core.placement.routing import Target


def targets(**weights: int) -> tuple[Target, ...]:
    return tuple(Target(revision, revision, ("a",), weight) for revision, weight in weights.items())


def drawn(rotation: Rotation, shares: tuple[Target, ...], turns: int, key: str = "k") -> list[str]:
    return [rotation.next(key, shares).revision for _ in range(turns)]


@pytest.mark.parametrize("weight", [1, 5, 10, 33, 50, 99])
def test_over_2000_requests_the_share_is_the_weight(weight: int) -> None:
    counts = Counter(drawn(Rotation(), targets(blue=100 - weight, green=weight), 2000))
    assert abs(counts["green"] / 20 - weight) <= 0.1  # points


def test_a_small_share_is_spread_evenly_not_in_runs() -> None:
    turns = [n for n, r in enumerate(drawn(Rotation(), targets(blue=90, green=10), 100)) if r == "green"]
    assert len(turns) == 10
    assert {b - a for a, b in pairwise(turns)} == {10}


@given(
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 100), min_size=1),
    st.integers(0, 300),
)
def test_at_any_moment_every_share_is_right_to_about_a_request(weights: dict[str, int], turns: int) -> None:
    counts = Counter(drawn(Rotation(), targets(**weights), turns))
    total = sum(weights.values())
    for revision, weight in weights.items():
        assert abs(counts[revision] - turns * weight / total) < len(weights)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.integers(1, 100), min_size=1), st.integers(1, 40)
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_was_before_a_change_of_weights_is_worth_a_few_requests_at_most(
    phases: list[tuple[dict[str, int], int]],
) -> None:
    rotation = Rotation()
    for weights, turns in phases:
        drawn(rotation, targets(**weights), turns)
    weights = {"a": 70, "b": 30}
    counts = Counter(drawn(rotation, targets(**weights), 1000))
    assert abs(counts["a"] - 700) <= 10


def test_endpoints_have_rotations_of_their_own() -> None:
    rotation = Rotation()
    shares = targets(blue=50, green=50)
    assert drawn(rotation, shares, 1, "x") == drawn(rotation, shares, 1, "y")
    rotation.forget("y")
    assert drawn(rotation, shares, 1, "x") != drawn(rotation, shares, 1, "y")
