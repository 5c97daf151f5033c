"""docs/guides/roll-out.md: `kubectl llm rollout plan` reads the limits as the operator does, and foresees the operator's verdict."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_cli.core.observe_spec import asked_by
from llmendpoint_cli.core.rollout_plan import Traffic, make_plan
from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.rollout.analysis import Result, judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import OBSERVE, Limits, find_limits
from llmendpoint_verdicts.shares import clumping

SPECS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "errors": {"rollout": {"observe": {"errorRate": {"max": 0.01}}}},
    "relative alone": {"rollout": {"observe": {"errorRate": {"maxIncrease": 0.01}}}},
    "all": {
        "slo": {"ttftSeconds": 2, "e2eSeconds": 30},
        "rollout": {
            "strategy": "Canary",
            "canary": {"steps": [{"weight": 10, "duration": 30}, {"weight": 50}]},
            "observe": {
                "errorRate": {"max": 0.05, "maxIncrease": 0.01},
                "ttft": {"maxRatio": 1.5},
                "itl": {"p95Seconds": 0.1, "maxRatio": 2},
                "margin": 0.1,
                "falseRollbackRate": 0.02,
                "missRate": 0.1,
                "minRequests": 50,
                "duration": 120,
                "maxDuration": 900,
            },
        },
    },
}


def spec_of(written: dict[str, Any]) -> LLMEndpointSpec:
    return LLMEndpointSpec.model_validate({"model": {"source": "embedded://demo"}, **written})


def fields(limits: Limits) -> list[str]:
    """Where each limit is written."""
    found = [f"{OBSERVE}.errorRate.max"] * (limits.error_rate is not None)
    found += [f"{OBSERVE}.errorRate.maxIncrease"] * (limits.error_rate_increase is not None)
    for limit in limits.latencies:
        found += [limit.seconds_field] * (limit.seconds is not None)
        found += [limit.ratio_field] * (limit.ratio is not None)
    return found


@pytest.mark.parametrize("written", SPECS.values(), ids=SPECS.keys())
def test_both_read_the_same_limits_from_a_spec(written: dict[str, Any]) -> None:
    spec, asked = spec_of(written), asked_by(written)
    limits = find_limits(spec, spec.rollout.observe.duration)
    assert [limit.field for limit in asked.limits] == fields(limits)
    assert (asked.duration, asked.max_duration) == (limits.duration, spec.rollout.observe.max_duration)
    assert (asked.margin, asked.min_requests) == (limits.margin, limits.min_requests)
    assert (asked.false_rollback_rate, asked.miss_rate) == (limits.false_rollback_rate, limits.miss_rate)
    assert asked.windows == limits.windows
    errors = [limit.allowed for limit in asked.limits if "errorRate" in limit.field]
    assert errors == [e for e in (limits.error_rate, limits.error_rate_increase) if e is not None]


@pytest.mark.parametrize("errors", [0.0, 0.005, 0.01])
def test_the_operator_is_sure_of_a_good_revision_after_about_as_many_requests(errors: float) -> None:
    written = SPECS["errors"]
    [row] = make_plan("chat", asked_by(written), Traffic(1.0, errors)).rows
    assert row.requests is not None
    limits = find_limits(spec_of(written), 0)

    def kept(requests: int) -> bool:
        failed, cells = round(requests * errors), requests / 10
        figures = Figures(requests, failed, clumping=clumping(requests, failed, failed / 10, cells))
        return judge(limits, figures, None, 600).kept

    assert not kept(round(row.requests * 0.85))
    assert kept(round(row.requests * 1.25))


def test_a_change_that_is_said_to_be_seen_is_rolled_back_by_the_operator() -> None:
    written = SPECS["errors"]
    [row] = make_plan("chat", asked_by(written), Traffic(1.0, 0.001)).rows
    assert row.smallest_seen is not None
    limits, requests = find_limits(spec_of(written), 0), round(row.within)
    assert (
        judge(limits, Figures(requests, round(requests * row.smallest_seen)), None, 600).result is Result.BAD
    )
    assert judge(limits, Figures(requests, round(requests * 0.012)), None, 600).result is not Result.BAD
