"""docs/concepts/rollouts.md: a revision is rolled back on evidence against a limit, and confirmed on evidence for all of them."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api import LLMEndpointSpec
from llmendpoint_operator.core.rollout.analysis import Result, judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import LatencyLimit, Limits, find_limits
from llmendpoint_operator.core.rollout.tails import Tail

from ..figures import figures

TTFT = LatencyLimit("time to first token", "TimeToFirstToken", "ttft", attrgetter("ttft"))
ITL = LatencyLimit("inter-token latency", "InterTokenLatency", "itl", attrgetter("itl"))
LIMITS = Limits(duration=60, error_rate=0.02)
BLUE = figures(2000, 10, ttft=0.2)


def with_ttft(seconds: float | None = None, ratio: float | None = None) -> Limits:
    limit = replace(TTFT, seconds=seconds, seconds_field="spec.slo.ttftSeconds", ratio=ratio)
    return replace(LIMITS, latencies=(limit,))


def test_a_revision_that_keeps_its_limits_is_good_after_the_duration() -> None:
    verdict = judge(LIMITS, Figures(400, 2), BLUE, 60)
    assert (verdict.result, verdict.message) == (Result.GOOD, "error rate 0.5% of 400 requests")
    assert judge(LIMITS, Figures(400, 2), BLUE, 59).reason == "StillObserving"


def test_a_window_that_a_restart_of_the_operator_cut_short_is_observed_to_its_whole_length() -> None:
    assert judge(LIMITS, Figures(400, 2, seconds=5), BLUE, 100).reason == "StillObserving"
    assert judge(LIMITS, Figures(400, 2, seconds=60), BLUE, 100).result is Result.GOOD


@pytest.mark.parametrize("few", [Figures(), Figures(20), Figures(60), Figures(100, 1)])
def test_what_a_few_requests_do_not_show_is_not_called_kept_however_long_it_takes(few: Figures) -> None:
    verdict = judge(LIMITS, few, BLUE, 10_000)
    assert (verdict.result, verdict.reason) == (Result.TOO_LITTLE, "NotKnownYet")
    assert verdict.message == (
        "too few requests so far to show that the error rate is at most 2.0%, within spec.rollout.observe.margin of 3%"
    )


def test_a_few_errors_by_chance_are_no_breach_where_their_share_is_above_the_limit() -> None:
    assert judge(LIMITS, Figures(20, 1), None, 1).result is Result.TOO_LITTLE, "5 % of 20"
    assert judge(LIMITS, Figures(300, 9), None, 600).result is Result.TOO_LITTLE, "3 % of 300"


def test_too_many_errors_are_a_breach_at_once_with_figure_limit_and_evidence() -> None:
    verdict = judge(LIMITS, Figures(100, 12), None, 1)
    assert (verdict.result, verdict.reason) == (Result.BAD, "ErrorRateTooHigh")
    assert verdict.message == (
        "error rate 12.0% (12 of 100 requests) is above the limit of 2.0% (spec.rollout.observe.errorRate.max); "
        "1 in 22,000 by chance"
    )


def test_failures_that_come_in_clumps_are_less_evidence_than_as_many_one_by_one() -> None:
    assert judge(LIMITS, Figures(300, 30), None, 5).result is Result.BAD
    assert judge(LIMITS, Figures(300, 30, clumping=10), None, 5).result is Result.TOO_LITTLE


def test_where_every_request_fails_five_are_enough() -> None:
    verdict = judge(LIMITS, Figures(5, 5, clumping=10), BLUE, 0.5)
    assert (verdict.reason, verdict.message) == ("EveryRequestFailed", "all of the 5 requests failed")
    assert judge(LIMITS, Figures(4, 4, clumping=10), BLUE, 0.5).result is Result.TOO_LITTLE


def test_where_many_errors_are_allowed_five_failures_are_not_enough() -> None:
    limits = replace(LIMITS, error_rate=0.5)
    assert judge(limits, Figures(6, 6, clumping=10), None, 1).result is Result.TOO_LITTLE
    assert judge(limits, Figures(7, 7, clumping=10), None, 1).reason == "EveryRequestFailed"


def test_a_ratio_is_broken_only_where_the_percentile_itself_is_too_high() -> None:
    """More of green's requests are slow at the bound that is tested, and the 95th percentiles are nearly the same."""
    bounds = (0.25, 0.5, 0.75, 1.0)
    blue = replace(figures(3000, 0), ttft=Tail(3000, bounds, (1500, 270, 240, 60), (1,) * 4))
    green = replace(figures(3000, 0), ttft=Tail(3000, bounds, (1500, 500, 390, 60), (1,) * 4))
    assert judge(with_ttft(ratio=1.5), green, blue, 60).result is not Result.BAD


def test_where_the_old_revision_failed_as_well_failures_alone_are_not_the_new_ones() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    assert judge(limits, Figures(20, 20), Figures(2000, 1990), 5).result is not Result.BAD


def test_more_limits_and_more_windows_need_more_evidence_for_a_rollback() -> None:
    green = Figures(100, 9)
    assert judge(LIMITS, green, None, 1).result is Result.BAD
    assert judge(replace(LIMITS, windows=5), green, None, 1).result is Result.TOO_LITTLE
    assert judge(replace(LIMITS, windows=5, false_rollback_rate=0.05), green, None, 1).result is Result.BAD


def test_a_limit_of_no_errors_is_broken_by_the_first() -> None:
    limits = replace(LIMITS, error_rate=0)
    assert judge(limits, Figures(1000, 1), None, 5).result is Result.BAD
    assert judge(limits, Figures(1000, 0), None, 60).result is Result.GOOD


def test_a_number_of_requests_that_the_spec_asks_for_is_waited_for() -> None:
    limits = replace(LIMITS, min_requests=1000)
    verdict = judge(limits, Figures(999, 0), BLUE, 600)
    assert verdict.message == "fewer than 1000 requests (spec.rollout.observe.minRequests)"
    assert judge(limits, Figures(1000, 0), BLUE, 600).result is Result.GOOD


def test_errors_that_the_old_revision_has_too_are_no_increase() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    assert judge(limits, Figures(2000, 100), Figures(2000, 100), 60).result is Result.GOOD
    verdict = judge(limits, Figures(2000, 200), Figures(2000, 100), 60)
    assert verdict.reason == "ErrorRateIncreased"
    assert "above the old revision's 5.0%" in verdict.message


def test_what_an_old_revision_with_too_few_requests_cannot_show_is_not_waited_for_and_said() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    for blue in (None, Figures(), Figures(20, 1)):
        verdict = judge(limits, Figures(1000, 5), blue, 60)
        assert verdict.result is Result.GOOD
        assert "not compared with the old revision" in verdict.message, "nobody takes it for a comparison"


def test_what_is_far_worse_than_an_old_revision_with_few_requests_is_a_breach_all_the_same() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    assert judge(limits, Figures(100, 60), Figures(50, 0), 5).reason == "ErrorRateIncreased"


def test_a_slow_revision_breaks_the_absolute_limit_at_the_next_bound_above_it() -> None:
    verdict = judge(with_ttft(seconds=0.45), figures(100, 0, ttft=1.25), BLUE, 5)
    assert (verdict.result, verdict.reason) == (Result.BAD, "TimeToFirstTokenTooHigh")
    assert verdict.message.startswith(
        "time to first token p95 1.25 s (30.2% of 100 requests took longer than 500 ms) is above the limit of 450 ms "
        "(spec.slo.ttftSeconds); "
    )


def test_a_limit_between_two_bounds_is_kept_where_the_lower_one_is() -> None:
    limits = with_ttft(seconds=0.45)
    assert judge(limits, figures(1000, 0, ttft=0.2), BLUE, 60).result is Result.GOOD
    verdict = judge(limits, figures(1000, 0, ttft=0.45), BLUE, 60)
    assert verdict.kept, "a bound at the limit itself"
    between = replace(figures(1000, 0), ttft=Tail(1000, (0.3, 0.5), (200, 20), (1, 1)))
    assert judge(limits, between, BLUE, 60).result is Result.TOO_LITTLE, "nobody knows how many took 0.45 s"


def test_a_limit_below_every_bound_of_the_histogram_says_so() -> None:
    verdict = judge(with_ttft(seconds=0.001), figures(1000, 0, ttft=0.2), BLUE, 600)
    assert (verdict.result, verdict.reason) == (Result.TOO_LITTLE, "LimitTooLow")
    assert "spec.slo.ttftSeconds" in verdict.message


def test_a_slower_revision_breaks_the_limit_relative_to_the_old_one() -> None:
    limits = with_ttft(ratio=1.5)
    verdict = judge(limits, figures(2000, 0, ttft=0.4), BLUE, 5)
    assert verdict.reason == "TimeToFirstTokenIncreased"
    assert (
        "(10.6% of 2000 requests took longer than 300 ms) is above 1.5 times the old revision's 200 ms (5.0% longer than "
        "200 ms; spec.rollout.observe.ttft.maxRatio)"
    ) in verdict.message
    assert judge(limits, figures(2000, 0, ttft=0.2), BLUE, 60).result is Result.GOOD


def test_a_ratio_for_which_the_histogram_has_no_bound_is_left_out_and_said() -> None:
    one = replace(figures(2000, 0), ttft=Tail(2000, (0.1, 10), (1800, 0), (1, 1)))
    verdict = judge(with_ttft(ratio=1.5), one, one, 60)
    assert verdict.result is Result.GOOD
    assert verdict.message.endswith(
        "; time to first token not compared with the old revision: the histogram has no bound high enough"
    )


def test_many_times_slower_is_seen_with_coarse_bounds_too() -> None:
    def all_between(low: int) -> Figures:
        bounds = (0.05, 0.1, 0.5, 1.0, 5.0)
        return replace(figures(100, 0), ttft=Tail(100, bounds, (100,) * low + (0,) * (5 - low), (1,) * 5))

    assert judge(with_ttft(ratio=2), all_between(3), all_between(1), 5).reason == "TimeToFirstTokenIncreased"
    assert judge(with_ttft(ratio=2), all_between(1), all_between(1), 5).result is not Result.BAD


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        (with_ttft(seconds=0.5), "spec.slo.ttftSeconds"),
        (with_ttft(ratio=1.5), "spec.rollout.observe.ttft.maxRatio"),
    ],
)
def test_a_limit_whose_figure_nobody_measures_is_never_called_kept(limits: Limits, field: str) -> None:
    verdict = judge(limits, Figures(1000, 0), BLUE, 10_000)
    assert (verdict.result, verdict.reason) == (Result.TOO_LITTLE, "NothingMeasured")
    assert field in verdict.message


def test_what_the_old_revision_did_not_report_is_not_compared_and_the_verdict_says_so() -> None:
    limits = with_ttft(ratio=1.5)
    limits = replace(limits, latencies=(*limits.latencies, replace(ITL, ratio=2)))
    verdict = judge(limits, figures(2000, 0, 0.3, itl=0.02), figures(2000, 0, itl=0.02), 60)
    assert verdict.result is Result.GOOD
    assert verdict.message.endswith(
        "; time to first token not compared with the old revision, which did not report it"
    )


@pytest.mark.parametrize("moved", [Figures(1, 1), Figures(5, 0), figures(19, 3, 0.5)])
def test_messages_without_a_verdict_hold_no_figure_that_moves(moved: Figures) -> None:
    assert judge(LIMITS, moved, BLUE, 3) == judge(LIMITS, Figures(0, 0), BLUE, 500)


def spec_with(observe: dict[str, object], slo: dict[str, float] | None = None) -> LLMEndpointSpec:
    fields = {"model": {"source": "embedded://demo"}, "rollout": {"observe": observe}, "slo": slo or {}}
    return LLMEndpointSpec.model_validate(fields)


def test_without_limits_two_percent_of_errors_are_the_limit() -> None:
    limits = find_limits(spec_with({}), 60)
    assert limits == LIMITS
    assert not limits.relative


def test_each_step_of_a_canary_is_a_window_of_its_own() -> None:
    canary = {"steps": [{"weight": 10}, {"weight": 50}]}
    fields = {"model": {"source": "embedded://demo"}, "rollout": {"strategy": "Canary", "canary": canary}}
    assert find_limits(LLMEndpointSpec.model_validate(fields), 60).windows == 3


def test_an_slo_limits_what_observe_says_nothing_of() -> None:
    limits = find_limits(
        spec_with({"ttft": {"p95Seconds": 1.5}}, {"ttftSeconds": 3, "itlSeconds": 0.1, "e2eSeconds": 30}), 60
    )
    assert [(limit.seconds, limit.seconds_field) for limit in limits.latencies] == [
        (1.5, "spec.rollout.observe.ttft.p95Seconds"), (0.1, "spec.slo.itlSeconds"), (30, "spec.slo.e2eSeconds"),
    ]  # fmt: skip
    assert judge(limits, figures(100, 0, 1.0, 0.05, e2e=90), None, 60).reason == "RequestLatencyTooHigh"


def test_a_ratio_alone_leaves_the_slo_as_the_absolute_limit() -> None:
    [limit] = find_limits(spec_with({"ttft": {"maxRatio": 2}}, {"ttftSeconds": 3}), 60).latencies
    assert (limit.seconds, limit.seconds_field, limit.ratio) == (3, "spec.slo.ttftSeconds", 2)


def test_an_increase_alone_lifts_the_absolute_limit_on_errors() -> None:
    limits = find_limits(spec_with({"errorRate": {"maxIncrease": 0.01}}), 60)
    assert (limits.error_rate, limits.error_rate_increase) == (None, 0.01)


some = st.integers(0, 500).flatmap(
    lambda requests: st.builds(
        figures, st.just(requests), st.integers(0, requests), st.none() | st.floats(0.001, 10)
    )
)


@given(some, st.none() | some, st.floats(0, 1000))
def test_more_errors_never_make_a_bad_revision_good(
    green: Figures, blue: Figures | None, elapsed: float
) -> None:
    limits = replace(with_ttft(seconds=2, ratio=2), error_rate_increase=0.01)
    if judge(limits, green, blue, elapsed).result is Result.BAD:
        worse = replace(green, errors=green.requests)
        assert judge(limits, worse, blue, elapsed).result is Result.BAD
