"""docs/guides/roll-out.md: before a rollout, `rollout plan` says which limits this traffic can decide, and what it would see."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_cli.core.observe_spec import asked_by
from llmendpoint_cli.core.rollout_plan import Plan, Traffic, make_plan
from llmendpoint_cli.render import make_console
from llmendpoint_cli.render_rollout_plan import plan_view

from .samples import Json
from .test_tree import check_golden

ALL = {
    "errorRate": {"max": 0.02, "maxIncrease": 0.01},
    "ttft": {"p95Seconds": 2, "maxRatio": 1.5},
}
RELATIVE = {"errorRate": {"maxIncrease": 0.01}}
CANARY = {"strategy": "Canary", "canary": {"steps": [{"weight": 10, "duration": 30}, {"weight": 50}]}}


def spec(observe: Json | None = None, **rollout: Any) -> Json:
    return {"rollout": {**rollout, "observe": observe or {}}}


def plan(rate: float, observe: Json | None = None, errors: float = 0.001, **rollout: Any) -> Plan:
    return make_plan("team-a/chat", asked_by(spec(observe, **rollout)), Traffic(rate, errors))


def test_enough_requests_decide_each_limit_at_each_step() -> None:
    found = plan(100, ALL, **CANARY)
    assert found.decidable
    assert [row.weight for row in found.rows] == [10] * 4 + [50] * 4 + [100] * 4
    assert all(row.requests is not None and row.smallest_seen is not None for row in found.rows)


def test_what_the_terminal_shows() -> None:
    check_golden("rollout_plan.txt", plan_view(plan(2, ALL, **CANARY)))


def test_one_limit_and_no_canary_is_one_line() -> None:
    check_golden("rollout_plan_simple.txt", plan_view(plan(10, {"errorRate": {"max": 0.02}})))


def test_the_share_of_the_new_revision_is_shown_where_the_old_one_keeps_requests() -> None:
    file = io.StringIO()
    make_console(file, width=160).print(plan_view(plan(10, {**RELATIVE, "control": 20})))
    assert "SHARE" in file.getvalue()
    assert "80 %" in file.getvalue()


def test_a_limit_that_takes_too_long_says_how_long_and_what_helps() -> None:
    [row] = plan(0.1, {"errorRate": {"max": 0.02}}).rows
    assert row.requests is not None
    assert row.why == (
        "not decidable in 600 s: at 0.1 requests/s it takes 96 requests, 960 s; raise maxDuration to 960, or margin to 0.105"
    )
    longer = {"errorRate": {"max": 0.02}, "maxDuration": 960}
    wider = {"errorRate": {"max": 0.02}, "margin": 0.105}
    assert plan(0.1, longer).decidable
    assert plan(0.1, wider).decidable
    assert not plan(0.1, {"errorRate": {"max": 0.02}, "margin": 0.1}).decidable


def test_errors_of_today_near_the_limit_are_watched_for_longer_than_it_takes_to_decide() -> None:
    near, far = (plan(10, {"errorRate": {"max": 0.02}}, errors=errors) for errors in (0.019, 0.005))
    file = io.StringIO()
    make_console(file, width=200).print(plan_view(near))
    assert "s; near the limit, so watched for up to 600 s" in file.getvalue()
    assert [found.rows[0].near for found in (near, far)] == [True, False]
    assert near.decidable
    [compared] = plan(10, {"errorRate": {"max": 0.02}, "control": 20}, errors=0.019).rows
    assert not compared.near, "it would have to be worse than the old revision, too"


def test_hours_of_the_old_revision_may_decide_what_the_last_minute_cannot() -> None:
    hours = "Not needed if the operator has counted the old revision for hours"
    [few], [hardly_any] = plan(0.3, RELATIVE).rows, plan(0.001, RELATIVE).rows
    assert hours in few.why
    assert hours not in hardly_any.why


def test_errors_of_today_above_what_is_allowed_are_never_within_the_limit() -> None:
    [row] = plan(50, {"errorRate": {"max": 0.02}}, errors=0.07).rows
    assert row.requests is None
    assert row.why.startswith(
        "not decidable: 7.0% of the requests fail now, and the limit and the margin allow 5.0%"
    )
    assert "raise the limit, or margin to" in row.why


def test_few_requests_of_the_old_revision_are_named_and_how_many_it_takes() -> None:
    [row] = plan(0.3, {"errorRate": {"maxIncrease": 0.01}}).rows
    assert "about 18 requests of the old revision in 60 s before the switch are too few" in row.why
    assert "raise duration to" in row.why


def test_without_a_limit_and_a_choice_the_operator_waits_for_duration_only() -> None:
    [row] = plan(1, {"duration": 60}).rows
    assert row.field == "spec.rollout.observe.errorRate.max"
    assert row.within == 60
    assert "raise duration to 96" in row.why
    assert plan(1, {"duration": 60, "onInconclusive": "Pause"}).decidable


def test_limits_of_the_slo_count_where_the_rollout_has_none() -> None:
    asked = asked_by(
        {"slo": {"ttftSeconds": 2, "e2eSeconds": 30}, "rollout": {"observe": {"ttft": {"p95Seconds": 1}}}}
    )
    assert [limit.field for limit in asked.limits] == [
        "spec.rollout.observe.errorRate.max",
        "spec.rollout.observe.ttft.p95Seconds",
        "spec.slo.e2eSeconds",
    ]


def test_an_old_revision_that_keeps_requests_is_compared_over_the_same_seconds() -> None:
    """What it had before the switch would be too few, and does not matter."""
    [before] = plan(0.5, RELATIVE).rows
    [beside] = plan(0.5, {**RELATIVE, "control": 20}).rows
    assert "not waited for" in before.why
    assert beside.decidable
    assert (beside.weight, beside.requests_per_second) == (80, 0.4)


def test_at_a_step_of_a_canary_both_are_compared_and_after_the_last_one_with_before() -> None:
    found = plan(0.5, RELATIVE, strategy="Canary", canary={"steps": [{"weight": 50}]})
    assert ["not waited for" in row.why for row in found.rows] == [False, True]


def test_a_larger_part_of_the_old_revision_sees_smaller_changes() -> None:
    few, many = (plan(10, {**RELATIVE, "control": control}).rows[0].smallest_seen for control in (10, 50))
    assert few is not None
    assert many is not None
    assert many < few


def test_failures_of_the_callers_are_decided_by_comparison() -> None:
    limit = {"errorRate": {"max": 0.02}}
    [alone] = plan(50, limit, errors=0.07).rows
    [compared] = plan(50, {**limit, "control": 20}, errors=0.07).rows
    assert alone.why.endswith(", or write control: 20")
    assert compared.decidable
    assert compared.smallest_seen is not None
    assert compared.smallest_seen > 0.07


def test_more_limits_and_steps_see_only_larger_changes() -> None:
    alone, many = plan(10, {"errorRate": {"max": 0.02}}), plan(10, ALL, **CANARY)
    [one], last = alone.rows, many.rows[-4]
    assert one.smallest_seen is not None
    assert last.smallest_seen is not None
    assert one.field == last.field
    assert one.smallest_seen < last.smallest_seen


def test_a_floor_of_requests_is_kept() -> None:
    assert plan(10, {"errorRate": {"max": 0.02}, "minRequests": 500}).rows[0].requests == 500


def test_nothing_is_observed_for_zero_seconds() -> None:
    found = plan(1, {"duration": 0, "errorRate": {"max": 0.02}})
    assert (found.rows, found.decidable) == ((), True)


@given(st.floats(0.01, 500), st.floats(0, 0.04))
def test_twice_the_traffic_decides_no_later_and_sees_no_less(rate: float, errors: float) -> None:
    once, twice = plan(rate, ALL, errors), plan(2 * rate, ALL, errors)
    for one, other in zip(once.rows, twice.rows, strict=True):
        # From ten requests a second on, cells of engines' figures hold more of them.
        if one.decidable and rate < 5:
            assert other.decidable
        if one.smallest_seen is not None:
            assert (other.smallest_seen or 1.0) <= one.smallest_seen + 1e-3


@pytest.mark.parametrize(
    ("rollout", "said"),
    [
        ({"canary": {"steps": [{"weight": 0}]}}, "weight is 0; it must be from 1 to 99"),
        ({"canary": {"steps": [{"weight": 100}]}}, "weight is 100; it must be from 1 to 99"),
        ({"observe": {"control": 100}}, "control is 100; it must be from 10 to 50"),
        ({"observe": {"control": 0}}, "control is 0; it must be from 10 to 50"),
    ],
)
def test_a_share_that_the_api_server_would_refuse_is_refused(rollout: Json, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        asked_by({"rollout": rollout})
