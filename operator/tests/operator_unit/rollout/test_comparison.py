"""docs/concepts/rollouts.md: a promotion with a limit relative to blue waits until blue was measured, but not for ever."""

from __future__ import annotations

from typing import Any

from ..figures import figures
from ..rollout_stage import GOOD, Rollout

RELATIVE = {"duration": 30, "ttft": {"maxRatio": 1.5}}


def coming_up(**rollout: Any) -> tuple[Rollout, str]:
    """To where nothing but a promotion is missing."""
    it = Rollout(**rollout)
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    return it, green


def test_a_promotion_waits_for_figures_of_the_old_revision() -> None:
    it, green = coming_up(observe=RELATIVE)
    assert it.cluster.state == "AwaitingPromotion"
    it.cluster.figures = {it.blue: figures(requests=30, ttft=0.1)}
    assert it.work(5) == "AwaitingPromotion"
    it.cluster.figures = {it.blue: figures(requests=2000, ttft=0.1)}
    assert it.work() == "Switching"
    baseline = it.cluster.status["rollout"]["baseline"]
    assert (baseline["requests"], baseline["errors"]) == (2000, 0)
    assert (baseline["ttft"]["requests"], baseline["ttft"]["p95Seconds"]) == (2000, 0.1)
    assert {"seconds": 0.1, "requests": 100, "clumping": 1} in baseline["ttft"]["slower"]
    it.cluster.follow()
    it.cluster.figures = {green: figures(1000, ttft=0.3)}
    it.work()
    assert it.rejected["reason"] == "TimeToFirstTokenIncreased"


def test_it_waits_no_longer_than_an_observation_and_the_verdict_says_that_nothing_was_compared() -> None:
    it, green = coming_up(observe=RELATIVE)
    assert it.cluster.plan(it.now).requeue_after == 30
    assert it.work(30) == "Switching"
    it.cluster.follow()
    it.cluster.figures = {green: GOOD}
    it.work()
    it.work(31)
    [confirmed] = [told for told in it.told if told.startswith("RevisionConfirmed")]
    assert "not compared with the old revision" in confirmed


def test_an_operator_that_was_restarted_measures_the_old_revision_for_as_long_as_it_takes() -> None:
    it, _ = coming_up(observe=RELATIVE)
    it.cluster.watched = 0.5
    assert it.work(31) == "AwaitingPromotion", "the wait is over by the clock, but nothing was measured in it"
    assert it.cluster.plan(it.now).requeue_after == 29.5
    it.cluster.figures = {it.blue: figures(requests=2000, ttft=0.1)}
    assert it.work() == "Switching"


def test_absolute_limits_need_no_old_revision_and_wait_for_nothing() -> None:
    it, _ = coming_up(observe={"ttft": {"p95Seconds": 2}, "errorRate": {"max": 0.1}})
    assert it.cluster.state == "Switching"


def test_a_promotion_by_hand_does_not_wait_for_figures() -> None:
    it, green = coming_up(observe=RELATIVE, promotion="Manual")
    assert it.cluster.plan(it.now).requeue_after is None
    it.ask("promote", green)
    assert it.cluster.state == "Switching"


def test_an_old_revision_that_is_down_is_not_waited_for() -> None:
    it = Rollout(observe=RELATIVE)
    green = it.edit()
    for pod in it.cluster.pods[it.blue]:
        pod["status"]["conditions"][0]["status"] = "False"
    it.cluster.make_ready(green)
    assert it.work() == "Switching"


def last_step_of_a_canary(seconds: int, **rollout: Any) -> Any:
    """The baseline at the last step, after one step of so many seconds. 1 % of blue's requests failed before it, and 4 % in it."""
    observe = {"duration": 30, "maxDuration": 3600, "errorRate": {"maxIncrease": 0.01, "max": 0.1}}
    it = Rollout(
        strategy="Canary", canary={"steps": [{"weight": 50, "duration": seconds}]}, observe=observe | rollout
    )
    green = it.switched_after(figures(4000, 40))
    for revision in (it.blue, green):
        it.cluster.figures[revision] = figures(3000, 120, seconds=float(seconds))
    it.work(seconds + 1)
    assert it.cluster.weights()[green] == 100 - rollout.get("control", 0)
    return it.cluster.status["rollout"]["baseline"]


def test_the_last_step_of_a_long_canary_is_compared_with_the_step_before_it() -> None:
    assert last_step_of_a_canary(1200)["errors"] == 120


def test_after_a_short_canary_the_time_before_it_counts() -> None:
    assert last_step_of_a_canary(60)["errors"] == 40


def test_where_the_old_revision_keeps_a_share_nothing_takes_the_place_of_the_baseline() -> None:
    assert last_step_of_a_canary(1200, control=20)["errors"] == 40
