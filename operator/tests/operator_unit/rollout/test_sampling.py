"""docs/concepts/verdicts.md: in its first seconds a new revision is looked at as often as ten requests take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.sampling import (
    EARLY_SAMPLE_S,
    SAMPLE_S,
    SAMPLES_PER_S,
    SHORTEST_S,
    next_sample,
)


@pytest.mark.parametrize(("per_second", "pause"), [(1, 1.0), (20, 0.5), (40, 0.25), (1000, SHORTEST_S)])
def test_each_early_sample_is_a_cell_of_ten_requests_if_that_is_not_too_often(
    per_second: int, pause: float
) -> None:
    assert next_sample(5, Figures(per_second * 5, seconds=5.0), 1) == pause


def test_later_samples_have_a_pause_of_their_own() -> None:
    assert next_sample(20, Figures(1000, seconds=20.0), 1) == SAMPLE_S


def test_nobody_waits_long_for_the_first_requests() -> None:
    assert [next_sample(watched, None, 1) for watched in (0, 0.5, 5)] == [SHORTEST_S, 0.5, EARLY_SAMPLE_S]


@given(st.integers(1, 2000), st.integers(0, 10**6), st.floats(0, 20, exclude_max=True))
def test_many_endpoints_share_the_samples_of_a_second(endpoints: int, requests: int, watched: float) -> None:
    pause = next_sample(watched, Figures(requests, seconds=max(watched, 0.1)), endpoints)
    assert SHORTEST_S <= pause <= SAMPLE_S
    assert endpoints / pause <= max(SAMPLES_PER_S, endpoints / SAMPLE_S) * (1 + 1e-9)
