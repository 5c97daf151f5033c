"""docs/guides/roll-out.md: `kubectl llm rollout plan` reads the limits as the operator does, and foresees the operator's verdict."""

from __future__ import annotations

import random
from typing import Any

import pytest

from llmendpoint_cli.core.observe_spec import asked_by
from llmendpoint_cli.core.rollout_plan import HOURS_S, Traffic, make_plan
from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.rollout.analysis import Result, judge
from llmendpoint_operator.core.rollout.baseline import SPANS
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import OBSERVE, Limits, find_limits
from llmendpoint_operator.observe.rollout.intervals import INTERVAL_S
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


@pytest.mark.parametrize("errors", [0.0, 0.001, 0.009, 0.01])
@pytest.mark.parametrize("limit", [{"max": 0.01}, {"maxIncrease": 0.01}, {"maxIncrease": 0.0}])
def test_a_figure_near_its_limit_is_said_to_be_watched_on_where_the_operator_does(
    errors: float, limit: dict[str, float]
) -> None:
    written = {"rollout": {"observe": {"errorRate": limit}}}
    [row] = make_plan("chat", asked_by(written), Traffic(10.0, errors)).rows
    assert row.requests is not None
    limits, requests = find_limits(spec_of(written), 0), 1.1 * row.requests
    verdict = judge(limits, exactly(requests, errors, 100 / requests), exactly(600, errors), 600)
    assert verdict.kept
    assert row.near == (verdict.reason == "NearLimit")


def exactly(requests: float, share: float, clumping: float = 1.0) -> Figures:
    """Counted a hundred times, and worth as many: so whole failures come near to any share."""
    return Figures(round(100 * requests), round(100 * requests * share), clumping=100 * max(1.0, clumping))


@pytest.mark.parametrize("errors", [0.001, 0.04])
@pytest.mark.parametrize("control", [0, 10, 20, 50])
@pytest.mark.parametrize("limit", [{"maxIncrease": 0.01}, {"max": 0.02}])
def test_a_change_that_is_said_to_be_seen_is_seen_whatever_chance_does_to_the_old_revision(
    limit: dict[str, float], control: int, errors: float
) -> None:
    """In 19 of 20 rollouts; of 60 here, fewer than 53 would be chance in one of a thousand."""
    observe = {"errorRate": limit, **({"control": control} if control else {})}
    written = {"rollout": {"observe": observe}}
    [row] = make_plan("chat", asked_by(written), Traffic(10.0, errors)).rows
    assert row.smallest_seen is not None
    assert row.weight == 100 - control
    limits, rng = find_limits(spec_of(written), 60), random.Random(7)
    seen = 0
    for _ in range(60):
        green = figures(rng, round(60 * row.weight), row.smallest_seen)
        before, beside = figures(rng, 600, errors), figures(rng, 60 * control, errors)
        verdict = judge(limits, green, before, 600, beside if control else None)
        seen += verdict.result is Result.BAD
    assert seen >= 53


def figures(rng: random.Random, requests: int, share: float) -> Figures:
    return Figures(requests, sum(rng.random() < share for _ in range(requests)))


def test_the_operator_is_sure_after_about_as_many_requests_where_both_revisions_serve() -> None:
    written = {"rollout": {"observe": {"errorRate": {"maxIncrease": 0.01}, "control": 20}}}
    [row] = make_plan("chat", asked_by(written), Traffic(1.0, 0.0)).rows
    assert row.requests is not None
    limits = find_limits(spec_of(written), 0)

    def kept(requests: int) -> bool:
        green, blue = (
            Figures(n, clumping=clumping(n, 0, 0, n / 10)) for n in (requests, round(requests / 4))
        )
        return judge(limits, green, None, 600, blue).kept

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


def test_the_plan_counts_no_more_hours_of_the_old_revision_than_the_operator() -> None:
    assert max(SPANS) * INTERVAL_S == HOURS_S
