"""docs/concepts/verdicts.md: an observation ends in time, though the operator looks at an endpoint only when there is news."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.observation import NEXT_FIGURES_S
from llmendpoint_operator.core.rollout.sampling import SAMPLE_S

from ..figures import figures
from ..rollout_stage import WATCHED, Rollout

LONGEST_S = 200


def end_of(arrivals: dict[int, int], *, at_each_sample: bool, **observe: Any) -> tuple[float, str, list[str]]:
    """When an observation of green ends, in which state, and what was told. `arrivals`: requests by second. The operator looks
    at each sample, or only at those with news and when it asked for it."""
    it = Rollout(observe=observe)
    green = it.switched()
    it.told.clear()
    began, known = it.now, Figures()
    sample, again = SAMPLE_S, it.cluster.plan(it.now).requeue_after or math.inf
    while (seconds := min(sample, again)) < LONGEST_S:
        news = False
        if sample <= again:
            requests = sum(count for at, count in arrivals.items() if at <= sample)
            news, known = requests != known.requests, figures(requests, 0, seconds=sample)
            it.cluster.figures, it.cluster.watched = {green: known}, sample
            sample += SAMPLE_S
        if news or at_each_sample or again <= seconds:
            it.now = began + timedelta(seconds=seconds)
            state = it.work()
            if state != "Observing" or it.cluster.status["rollout"].get("message"):
                return seconds, state, [told.split(":")[0] for told in it.told]
            again = seconds + (it.cluster.plan(it.now).requeue_after or math.inf)
    raise AssertionError(f"no end after {LONGEST_S} s")


arrivals = st.dictionaries(st.integers(0, 60), st.integers(1, 200), max_size=4)
limits = st.sampled_from([{}, WATCHED, {"errorRate": {"max": 1}}, {**WATCHED, "onInconclusive": "Rollback"}])


@settings(max_examples=40, deadline=None)
@given(arrivals, limits, st.integers(1, 50), st.integers(1, 100))
def test_an_observation_with_few_requests_ends_as_if_each_sample_were_looked_at(
    arrivals: dict[int, int], limits: dict[str, Any], duration: int, longer: int
) -> None:
    observe = {"duration": duration, "maxDuration": duration + longer, **limits}
    at, state, told = end_of(arrivals, at_each_sample=True, **observe)
    found, also, said = end_of(arrivals, at_each_sample=False, **observe)
    assert (also, said) == (state, told)
    assert at - SAMPLE_S <= found <= at + NEXT_FIGURES_S


@pytest.mark.parametrize(("requests", "end", "state"), [(1000, 60, "Idle"), (5, 120, "Observing")])
def test_requests_that_came_at_once_are_judged_when_the_time_is_over(
    requests: int, end: int, state: str
) -> None:
    observe = {"duration": 60, "maxDuration": 120, **WATCHED}
    at, found, _ = end_of({1: requests}, at_each_sample=False, **observe)
    assert (at, found) == (end, state), "paused without a verdict, it stays in Observing"
