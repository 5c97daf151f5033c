"""docs/operate/troubleshooting.md: what failed is tried again ever more seldom, up to a longest pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.pauses import growing_pause


@pytest.mark.parametrize(("failures", "pause"), [(1, 0.2), (2, 0.4), (3, 0.8), (8, 25.6), (12, 300.0)])
def test_each_pause_is_twice_the_one_before_until_the_longest(failures: int, pause: float) -> None:
    assert growing_pause(0.2, failures, 300.0) == pause


@given(st.integers(1, 10**9))
def test_no_number_of_failures_shortens_a_pause_or_is_too_large(failures: int) -> None:
    assert growing_pause(0.2, failures, 300.0) <= growing_pause(0.2, failures + 1, 300.0) <= 300.0
