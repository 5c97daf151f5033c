"""docs/concepts/rollouts.md: the scenarios by which Argo Rollouts tests blue-green and rollback windows, as they are with us.

Not here: ephemeral metadata and preview services (verification prompts ask the pods themselves), and a preview's own
replica count (a switch is only as safe as the capacity behind it). What a scenario means differently here says so.
"""

from __future__ import annotations

import pytest

from llmendpoint_operator.core.rollout.evidence import Figures

from ..fake_cluster import FakeCluster
from ..rollout_stage import Rollout

GOOD = Figures(requests=1000, errors=0)


def stages(it: Rollout) -> list[str]:
    return [told.split(":")[0] for told in it.told]


def finished(it: Rollout, seqs: int) -> str:
    """A revision that went all the way, and whose predecessor has no pods any more."""
    revision = it.switched(seqs)
    it.cluster.figures = {revision: GOOD}
    assert it.work(61) == "Idle"
    return revision


def test_an_update_tells_each_step_once_and_in_order() -> None:
    it = Rollout()
    green = finished(it, 2)
    told = [
        reason
        for reason in stages(it)
        if reason in ("RevisionCreated", "RevisionActivated", "RevisionScaled")
    ]
    assert told == ["RevisionCreated", "RevisionActivated", "RevisionScaled"]
    assert it.cluster.replicas() == {it.blue: 0, green: 2}


def test_a_first_revision_over_its_deadline_is_told_and_serves_as_soon_as_it_can() -> None:
    """The first deployment that takes longer than its deadline turns healthy all the same: nothing can be gone back to."""
    cluster = FakeCluster()
    cluster.settle()
    deployment = cluster.by_revision("Deployment")[cluster.target]
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    deployment["status"] = {"conditions": [late]}
    cluster.settle()
    assert cluster.condition("Stalled")["reason"] == "ProgressDeadlineExceeded"
    cluster.make_ready(cluster.target)
    cluster.settle()
    assert cluster.active == cluster.target
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("Stalled") == {}


@pytest.mark.parametrize("promotion", ["Auto", "Manual"])
def test_an_update_over_its_deadline_is_given_up_with_either_promotion(promotion: str) -> None:
    """There it goes on when the pods turn ready after all; here a revision that missed its deadline stays rejected."""
    it = Rollout(promotion=promotion)
    green = it.edit()
    assert it.work(601) == "RolledBack"
    it.cluster.make_ready(green)
    assert it.work(1) == "RolledBack"
    assert it.cluster.weights() == {it.blue: 100}
    assert it.rejected["reason"] == "ProgressDeadlineExceeded"


def test_a_wait_for_promotion_longer_than_the_deadline_is_no_failure() -> None:
    it = Rollout(promotion="Manual")
    it.cluster.make_ready(it.edit())
    assert it.work() == "AwaitingPromotion"
    assert it.work(6000) == "AwaitingPromotion"
    assert it.cluster.condition("Stalled").get("status") != "True"


def test_a_full_promotion_skips_the_observation() -> None:
    it = Rollout(promotion="Manual", observe={"errorRate": {"max": 0.01}})
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    it.ask("promote", green)
    it.cluster.follow()
    assert it.work() == "Observing"
    it.ask("promote", green, "r-2")
    assert it.cluster.state in ("Draining", "Idle")
    assert it.cluster.active == green


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_abort_keeps_the_new_pods_for_their_delay_and_then_takes_them(when: str) -> None:
    it = Rollout(abortScaleDownDelay=1, scaleDownDelay=5, promotion="Manual")
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    if when == "after":
        it.ask("promote", green)
        it.cluster.follow()
        it.work()
    it.ask("abort", green, "r-2")
    it.cluster.follow()
    assert it.cluster.weights() == {it.blue: 100}
    assert it.cluster.replicas() == {it.blue: 2, green: 2}
    it.work(2)
    it.cluster.follow()
    assert it.work(2) == "RolledBack"
    assert it.cluster.replicas() == {it.blue: 2, green: 0}


def test_the_old_pods_stay_for_the_delay_and_a_shortened_delay_counts_at_once() -> None:
    it = Rollout(scaleDownDelay=3600, observe={"duration": 0})
    it.switched()
    assert it.cluster.state == "Draining"
    it.work(600)
    assert it.cluster.replicas()[it.blue] == 2
    it.rollout["scaleDownDelay"] = 0
    it.cluster.edit(it.spec(2))
    assert it.work() == "Idle"
    assert it.cluster.replicas()[it.blue] == 0


def test_a_change_from_blue_green_to_canary_reaches_the_next_revision_and_touches_no_pod() -> None:
    it = Rollout()
    second = finished(it, 2)
    it.rollout |= {"strategy": "Canary", "canary": {"steps": [{"weight": 25, "duration": 60}]}}
    it.cluster.edit(it.spec(2))
    before = it.cluster.replicas()
    assert it.work() == "Idle"
    assert it.cluster.replicas() == before
    it.cluster.figures = {}
    third = it.switched(3)
    assert it.cluster.weights() == {second: 75, third: 25}


def test_a_rollback_while_the_old_pods_are_there_is_at_once() -> None:
    """Inside the window: no warm-up, no observation."""
    it = Rollout(scaleDownDelay=300, observe={"duration": 0})
    green = it.switched()
    assert it.cluster.state == "Draining"
    it.edit(1)
    assert it.cluster.weights() == {it.blue: 100}
    it.cluster.follow()
    assert it.work() in ("Draining", "Idle")
    assert it.cluster.replicas()[green] == 2, "the way back is open for as long"


def test_a_rollback_to_a_revision_without_pods_goes_the_whole_way() -> None:
    """Outside the window: it is brought up, and observed like any other."""
    it = Rollout()
    second = finished(it, 2)
    finished(it, 3)
    it.cluster.figures = {}
    assert it.edit(1) == it.blue
    assert it.cluster.state == "Warming"
    it.cluster.make_ready(it.blue)
    assert it.work() == "Switching"
    it.cluster.follow()
    assert it.work() == "Observing"
    assert second not in it.cluster.weights()


def test_scaling_alone_starts_no_rollout() -> None:
    it = Rollout()
    it.cluster.edit(it.cluster.spec.model_copy(update={"replicas": 3}))
    assert it.work() == "Idle"
    assert "RolloutStarted" not in stages(it)
    assert it.cluster.replicas() == {it.blue: 3}
