"""docs/concepts/rollouts.md: a revision that gets requests is judged by its limits, and not before `duration` and `minRequests`."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.rollout.analysis import LatencyLimit, Limits, Result, find_limits, judge
from llmendpoint_operator.core.rollout.evidence import Figures

TTFT = LatencyLimit("time to first token", "TimeToFirstToken", "ttft", lambda figures: figures.ttft_p95)
LIMITS = Limits(duration=60, min_requests=20, error_rate=0.02)
BLUE = Figures(requests=1000, errors=10, ttft_p95=0.2)


def with_ttft(seconds: float | None = None, ratio: float | None = None) -> Limits:
    limit = replace(TTFT, seconds=seconds, seconds_field="spec.slo.ttftSeconds", ratio=ratio)
    return replace(LIMITS, latencies=(limit,))


def test_a_revision_within_its_limits_is_good_after_the_duration() -> None:
    verdict = judge(LIMITS, Figures(400, 2), BLUE, 60)
    assert verdict.result is Result.GOOD
    assert verdict.message == "error rate 0.5% of 400 requests"


def test_a_revision_within_its_limits_is_not_good_before() -> None:
    assert judge(LIMITS, Figures(400, 2), BLUE, 59).reason == "StillObserving"


def test_a_window_that_a_restart_of_the_operator_cut_short_is_observed_to_its_whole_length() -> None:
    assert judge(LIMITS, Figures(400, 2, seconds=5), BLUE, 100).reason == "StillObserving"
    assert judge(LIMITS, Figures(400, 2, seconds=60), BLUE, 100).result is Result.GOOD


def test_too_few_requests_give_no_verdict_however_bad_they_are_and_however_long_it_takes() -> None:
    verdict = judge(LIMITS, Figures(19, 19), BLUE, 10_000)
    assert verdict.result is Result.TOO_LITTLE
    assert verdict.message == "fewer than 20 requests (spec.rollout.observe.minRequests)"


def test_too_many_errors_are_a_breach_at_once_with_figure_and_limit() -> None:
    verdict = judge(LIMITS, Figures(40, 4), None, 1)
    assert (verdict.result, verdict.reason) == (Result.BAD, "ErrorRateTooHigh")
    assert verdict.message == (
        "error rate 10.0% (4 of 40 requests) is above the limit of 2.0% (spec.rollout.observe.errorRate.max)"
    )


def test_an_error_rate_at_its_limit_is_within_it() -> None:
    assert judge(LIMITS, Figures(100, 2), None, 60).result is Result.GOOD


def test_errors_that_the_old_revision_has_too_are_no_increase() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    assert judge(limits, Figures(100, 5), Figures(100, 4), 60).result is Result.GOOD
    verdict = judge(limits, Figures(100, 6), Figures(100, 4), 60)
    assert verdict.reason == "ErrorRateIncreased"
    assert "above the old revision's 4.0%" in verdict.message


def test_an_old_revision_with_too_little_traffic_is_not_compared_with() -> None:
    limits = replace(with_ttft(ratio=1.5), error_rate_increase=0.0, error_rate=None)
    green = Figures(100, 5, ttft_p95=9.0)
    assert judge(limits, green, Figures(19, 0, ttft_p95=0.1), 60).result is Result.GOOD
    verdict = judge(limits, green, None, 60)
    assert verdict.result is Result.GOOD
    assert "not compared with the old revision" in verdict.message, "nobody takes it for a comparison"
    assert judge(limits, green, Figures(20, 0, ttft_p95=0.1), 60).result is Result.BAD


def test_a_slow_revision_breaks_the_absolute_limit() -> None:
    verdict = judge(with_ttft(seconds=0.5), Figures(100, 0, ttft_p95=1.25), BLUE, 5)
    assert (verdict.result, verdict.reason) == (Result.BAD, "TimeToFirstTokenTooHigh")
    assert verdict.message == (
        "time to first token p95 1.25 s is above the limit of 500 ms (spec.slo.ttftSeconds)"
    )


def test_a_slower_revision_breaks_the_limit_relative_to_the_old_one() -> None:
    verdict = judge(with_ttft(ratio=1.5), Figures(100, 0, ttft_p95=0.31), BLUE, 5)
    assert verdict.reason == "TimeToFirstTokenIncreased"
    assert verdict.message == (
        "time to first token p95 310 ms is above 1.5 times the old revision's 200 ms "
        "(spec.rollout.observe.ttft.maxRatio)"
    )
    assert judge(with_ttft(ratio=1.5), Figures(100, 0, ttft_p95=0.3), BLUE, 60).result is Result.GOOD


def test_a_limit_whose_figure_nobody_measures_is_never_called_met() -> None:
    verdict = judge(with_ttft(seconds=0.5), Figures(1000, 0), BLUE, 10_000)
    assert (verdict.result, verdict.reason) == (Result.TOO_LITTLE, "NothingMeasured")
    assert "spec.slo.ttftSeconds" in verdict.message


def test_a_ratio_to_what_the_new_revision_does_not_report_is_never_called_kept() -> None:
    verdict = judge(with_ttft(ratio=1.5), Figures(1000, 0), BLUE, 10_000)
    assert (verdict.result, verdict.reason) == (Result.TOO_LITTLE, "NothingMeasured")
    assert "spec.rollout.observe.ttft.maxRatio" in verdict.message


@pytest.mark.parametrize("ttft", [None, 0.3])
def test_what_the_old_revision_did_not_report_is_not_compared_and_the_verdict_says_so(
    ttft: float | None,
) -> None:
    itl = LatencyLimit(
        "inter-token latency", "InterTokenLatency", "itl", lambda figures: figures.itl_p95, ratio=2
    )
    limits = with_ttft(ratio=1.5)
    limits = replace(limits, latencies=(*limits.latencies, itl))
    verdict = judge(limits, Figures(100, 0, ttft, itl_p95=0.03), Figures(100, 0, itl_p95=0.02), 60)
    assert verdict.result is Result.GOOD
    assert verdict.message.endswith(
        "; time to first token not compared with the old revision, which did not report it"
    )


@pytest.mark.parametrize("moved", [Figures(1, 1), Figures(5, 0), Figures(19, 3, 0.5)])
def test_messages_without_a_verdict_hold_no_figure_that_moves(moved: Figures) -> None:
    assert judge(LIMITS, moved, BLUE, 3) == judge(LIMITS, Figures(0, 0), BLUE, 500)


def spec_with(observe: dict[str, object], slo: dict[str, float] | None = None) -> LLMEndpointSpec:
    fields = {"model": {"source": "embedded://demo"}, "rollout": {"observe": observe}, "slo": slo or {}}
    return LLMEndpointSpec.model_validate(fields)


def test_without_limits_two_percent_of_errors_are_the_limit() -> None:
    limits = find_limits(spec_with({}), 60)
    assert limits == Limits(duration=60, min_requests=20, error_rate=0.02)
    assert not limits.relative


def test_an_slo_limits_what_observe_says_nothing_of() -> None:
    limits = find_limits(
        spec_with({"ttft": {"p95Seconds": 1.5}}, {"ttftSeconds": 3, "itlSeconds": 0.1, "e2eSeconds": 30}), 60
    )
    assert [(limit.seconds, limit.seconds_field) for limit in limits.latencies] == [
        (1.5, "spec.rollout.observe.ttft.p95Seconds"), (0.1, "spec.slo.itlSeconds"), (30, "spec.slo.e2eSeconds"),
    ]  # fmt: skip
    assert judge(limits, Figures(100, 0, 1.0, 0.05, e2e_p95=31), None, 60).reason == "RequestLatencyTooHigh"


def test_a_ratio_alone_leaves_the_slo_as_the_absolute_limit() -> None:
    [limit] = find_limits(spec_with({"ttft": {"maxRatio": 2}}, {"ttftSeconds": 3}), 60).latencies
    assert (limit.seconds, limit.seconds_field, limit.ratio) == (3, "spec.slo.ttftSeconds", 2)


def test_an_increase_alone_lifts_the_absolute_limit_on_errors() -> None:
    limits = find_limits(spec_with({"errorRate": {"maxIncrease": 0.01}}), 60)
    assert (limits.error_rate, limits.error_rate_increase) == (None, 0.01)


figures = st.integers(0, 500).flatmap(
    lambda requests: st.builds(
        Figures, st.just(requests), st.integers(0, requests), st.none() | st.floats(0.001, 10)
    )
)


@given(figures, st.none() | figures, st.floats(0, 1000))
def test_more_errors_never_make_a_bad_revision_good(
    green: Figures, blue: Figures | None, elapsed: float
) -> None:
    limits = replace(with_ttft(seconds=2, ratio=2), error_rate_increase=0.01)
    if judge(limits, green, blue, elapsed).result is Result.BAD:
        worse = replace(green, errors=green.requests)
        assert judge(limits, worse, blue, elapsed).result is Result.BAD
