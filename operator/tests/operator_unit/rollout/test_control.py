"""docs/concepts/verdicts.md: while both revisions get requests, they are compared over the same seconds."""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter

import pytest

from llmendpoint_operator.core.rollout.analysis import Result, judge
from llmendpoint_operator.core.rollout.evidence import Figures
from llmendpoint_operator.core.rollout.limits import LatencyLimit, Limits

from ..figures import figures
from ..rollout_stage import GOOD, WATCHED, Rollout

LIMITS = Limits(duration=60, error_rate=0.02)
INCREASE = {"errorRate": {"maxIncrease": 0.01}}


def observed(**observe: object) -> tuple[Rollout, str]:
    it = Rollout(observe={"duration": 60, **WATCHED, **observe})
    green = it.switched()
    assert it.cluster.state == "Observing"
    return it, green


def after_a_good_hour(it: Rollout) -> str:
    """To where a new revision gets requests; 0.1 % of the old one's had failed before."""
    return it.switched_after(figures(4000, 4))


def test_the_old_revision_keeps_its_share_while_the_new_one_is_observed() -> None:
    it, green = observed(control=20)
    assert it.cluster.weights() == {it.blue: 20, green: 80}
    assert it.cluster.replicas()[it.blue] == 2, "it answers its share"
    it.cluster.figures = {green: GOOD, it.blue: GOOD}
    it.work(61)
    it.cluster.follow()
    assert it.work(1) in ("Draining", "Idle")
    assert it.cluster.weights() == {green: 100}


def test_after_the_last_step_of_a_canary_the_old_revision_keeps_its_share_too() -> None:
    it = Rollout(
        strategy="Canary",
        canary={"steps": [{"weight": 10, "duration": 5}]},
        observe={"duration": 60, "control": 30, **WATCHED},
    )
    green = it.switched()
    assert it.cluster.weights() == {it.blue: 90, green: 10}
    it.cluster.figures = {green: GOOD, it.blue: GOOD}
    it.work(6)
    it.cluster.follow()
    it.work()
    assert it.cluster.weights() == {it.blue: 30, green: 70}


def test_an_old_revision_that_does_not_answer_keeps_nothing() -> None:
    it = Rollout(observe={"duration": 60, "control": 20, **WATCHED})
    green = it.edit()
    for pod in it.cluster.pods[it.blue]:
        pod["status"]["conditions"][0]["status"] = "False"
    it.cluster.make_ready(green)
    it.work()
    assert it.cluster.weights() == {green: 100}


def test_a_share_that_is_taken_away_begins_the_observation_anew() -> None:
    it, green = observed(control=20)
    it.rollout = {"observe": {"duration": 60, **WATCHED}}
    it.cluster.edit(it.spec(2))
    it.work()
    assert it.cluster.weights() == {green: 100}
    assert (
        f"ShareChanged: revision {green}: 100 % of the requests now, 80 % before the spec was edited"
        in it.told
    )


def test_what_changed_since_the_switch_for_both_is_no_increase() -> None:
    """An hour with more errors: 0.1 % before the switch, 4 % of both now."""
    it = Rollout(observe={"duration": 60, "control": 20, **INCREASE})
    green = after_a_good_hour(it)
    assert it.cluster.state == "Observing"
    it.cluster.figures = {green: figures(4000, 160), it.blue: figures(1000, 40)}
    it.work(61)
    assert it.cluster.state != "RollingBack"
    assert any(told.startswith("RevisionConfirmed") for told in it.told)


def test_without_a_share_the_same_figures_are_an_increase() -> None:
    it = Rollout(observe={"duration": 60, **INCREASE})
    green = after_a_good_hour(it)
    it.cluster.figures = {green: figures(4000, 160)}
    it.work(5)
    assert it.rejected["reason"] == "ErrorRateIncreased"


@pytest.mark.parametrize("before", [Figures(2, 1, clumping=10), Figures(10, 1), Figures(30, 3)])
def test_a_few_failures_of_the_old_revision_excuse_nothing(before: Figures) -> None:
    assert judge(LIMITS, Figures(600, 600), before, 60).reason == "EveryRequestFailed"
    assert judge(LIMITS, Figures(600, 540), before, 60).reason == "ErrorRateTooHigh"


@pytest.mark.parametrize("before", [None, Figures(6000, 30)])
def test_what_happens_to_both_revisions_in_the_same_seconds_is_no_breach(before: Figures | None) -> None:
    assert judge(LIMITS, Figures(800, 240), before, 60, Figures(200, 60)).result is not Result.BAD
    assert judge(LIMITS, Figures(100, 100), before, 5, Figures(25, 25)).result is not Result.BAD
    slow = replace(LIMITS, latencies=(LatencyLimit("TTFT", "Ttft", "ttft", attrgetter("ttft"), 0.5, "x"),))
    green, old = figures(800, 0, ttft=1.5), figures(200, 0, ttft=1.5)
    assert judge(slow, green, before, 60, old).result is not Result.BAD
    assert judge(slow, green, before, 60, figures(800, 0, ttft=0.2)).result is Result.BAD


def test_an_outage_of_the_old_revision_that_is_over_lets_no_bad_revision_pass() -> None:
    before, healthy = Figures(6000, 600, clumping=30), Figures(1200, 6)
    assert judge(LIMITS, Figures(4800, 384), before, 600, healthy).result is Result.BAD
    half_a_minute = Figures(6000, 300, clumping=150)
    assert judge(LIMITS, Figures(1200, 120), half_a_minute, 120).result is Result.BAD


def test_an_old_revision_that_lost_its_pods_is_not_compared_with() -> None:
    it = Rollout(observe={"duration": 60, "control": 20, **INCREASE})
    green = after_a_good_hour(it)
    for pod in it.cluster.pods[it.blue]:
        pod["status"]["conditions"][0]["status"] = "False"
    it.cluster.figures = {green: figures(4000, 160)}
    it.work(5)
    assert it.rejected["reason"] == "ErrorRateIncreased"


@pytest.mark.parametrize("beside", [Figures(1000, 100), None])
def test_requests_that_fail_at_both_revisions_are_the_callers(beside: Figures | None) -> None:
    before = Figures(1000, 100)
    assert judge(LIMITS, Figures(1000, 100), before, 60, beside).result is not Result.BAD
    verdict = judge(LIMITS, Figures(1000, 300), before, 60, beside)
    assert verdict.result is Result.BAD
    assert "the error rate of the old revision is 10.0%" in verdict.message


def test_as_bad_as_the_old_revision_in_the_same_seconds_is_good_and_from_before_the_switch_it_is_unknown() -> (
    None
):
    old, green = Figures(6000, 600), Figures(6000, 595)
    verdict = judge(LIMITS, green, old, 60, old)
    assert verdict.result is Result.GOOD
    assert verdict.message.endswith("; the error rate of the old revision is 10.0%")
    assert judge(LIMITS, green, old, 60).result is Result.TOO_LITTLE


def test_what_clumps_at_the_old_revision_is_taken_to_clump_at_the_new_one() -> None:
    green, alike, clumped = Figures(300, 24), Figures(6000, 60), Figures(6000, 60, clumping=10)
    assert judge(LIMITS, green, alike, 30).result is Result.BAD
    assert judge(LIMITS, green, clumped, 30).result is Result.TOO_LITTLE
    too_few = Figures(1000, 4, clumping=10.0)
    assert judge(LIMITS, green, too_few, 30).result is Result.BAD, "four failures do not show how they clump"


def test_an_old_revision_that_gets_requests_is_waited_for_though_it_has_few_so_far() -> None:
    limits = replace(LIMITS, error_rate=None, error_rate_increase=0.01)
    assert judge(limits, Figures(1000, 40), Figures(20), 60).kept, "no more will come"
    assert not judge(limits, Figures(1000, 40), None, 60, Figures(20)).kept
    assert not judge(limits, Figures(1000, 5), None, 60, Figures()).kept


def test_a_figure_above_its_limit_and_within_the_margin_is_watched_until_there_is_no_more_time() -> None:
    it, green = observed(maxDuration=300)
    it.cluster.figures = {green: figures(2000, 50, seconds=100)}
    assert it.work(100) == "Observing"
    it.cluster.figures = {green: figures(6000, 150, seconds=300)}
    assert it.work(200) != "RollingBack"
    [told] = [told for told in it.told if told.startswith("RevisionConfirmed")]
    assert "the figure is above spec.rollout.observe.errorRate.max so far, or just below it" in told
