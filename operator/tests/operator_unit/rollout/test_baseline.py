"""docs/concepts/verdicts.md: figures of the old revision live in the status, which a hand or an older operator may have written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.analysis import judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import Limits
from llmendpoint_operator.core.rollout.machine import State
from llmendpoint_operator.core.rollout.records import Progress, parse_progress

from ..figures import figures

LIMITS = Limits(duration=60, error_rate_increase=0.01)


def read(baseline: Any) -> Figures | None:
    rollout = {"state": "Observing", "blue": "b", "green": "g", "baseline": baseline}
    return parse_progress({"rollout": rollout}, "b").baseline


def test_what_was_written_is_read_again() -> None:
    blue = figures(2000, 10, ttft=0.2, itl=0.02, clumping=2.5)
    written = Progress(State.OBSERVING, "b", "g", baseline=blue).as_json()["baseline"]
    found = read(written)
    assert found is not None
    assert (found.requests, found.errors, found.clumping) == (2000, 10, 2.5)
    assert found.ttft is not None
    assert found.ttft.p95 == 0.2
    assert found.e2e is None


def test_the_drift_of_a_baseline_survives_a_restart() -> None:
    blue = figures(2000, 10, ttft=0.2, drift=7.25).with_latencies(
        lambda _, tail: tail and replace(tail, drift=3.5)
    )
    found = read(Progress(State.OBSERVING, "b", "g", baseline=blue).as_json()["baseline"])
    assert found is not None
    assert found.ttft is not None
    assert (found.drift, found.ttft.drift) == (7.25, 3.5)


def test_one_of_an_operator_that_wrote_percentiles_alone_compares_no_latency() -> None:
    found = read({"requests": 100, "errors": 1, "ttftP95Milliseconds": 200})
    assert found == Figures(100, 1)


SLOWER = {"seconds": 0.1, "requests": 5}


@pytest.mark.parametrize(
    "absurd",
    [
        {}, [], "x", {"requests": 10}, {"requests": -1, "errors": 0}, {"requests": 5, "errors": 6},
        {"requests": 5, "errors": -1}, {"requests": 5, "errors": 1, "clumping": 0},
        {"requests": 5, "errors": 1, "drift": 0}, {"requests": 5, "errors": 1, "drift": "nan"},
        {"requests": 5, "errors": 1, "drift": 1e13},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [SLOWER], "drift": 0.5}},
        {"requests": 2**63, "errors": 1}, {"requests": "nan", "errors": 0}, {"requests": 10**400, "errors": 0},
        {"requests": 9, "errors": 0, "ttft": {"slower": [SLOWER]}},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [{"requests": 1}]}},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [SLOWER, SLOWER]}},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [{**SLOWER, "seconds": 0}]}},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [{**SLOWER, "seconds": "inf"}]}},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [SLOWER, {"seconds": 1, "requests": 7}]}},
        {"requests": 9, "errors": 0, "ttft": {"requests": 9, "slower": [{**SLOWER, "clumping": 0}]}},
    ],
)  # fmt: skip
def test_what_no_operator_wrote_is_not_compared_with(absurd: Any) -> None:
    assert read(absurd) is None


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)


@given(st.dictionaries(st.sampled_from(["requests", "errors", "clumping", "ttft"]), scalars))
def test_whatever_stands_there_a_verdict_comes_out(written: dict[str, Any]) -> None:
    judge(LIMITS, Figures(100, 5), read(written), 60)
