"""Rollouts at their edges: two things at once, a late gateway, a cluster that is full, a change of mind."""

from __future__ import annotations

from datetime import timedelta

from llmendpoint_operator.core.steps import events_of

from .test_rollout_capacity import Small


def told(it: Small) -> list[str]:
    """What a look now would tell, before it is done."""
    return [f"{e.type} {e.reason}: {e.message}" for s in it.cluster.plan(it.now).steps for e in events_of(s)]


def test_a_single_replica_is_not_stopped_for_a_revision_that_waits_for_a_promotion_by_hand() -> None:
    it = Small(1, promotion="Manual")
    it.edit()
    for _ in range(3):
        it.work(31)
        assert it.cluster.status["rollout"]["mode"] == "Surge"
        assert it.cluster.replicas()[it.blue] == 1
    it.work(600)
    assert it.cluster.status["rejected"]["reason"] == "ProgressDeadlineExceeded"
    assert "nvidia.com/gpu" in it.cluster.status["rejected"]["message"]
    assert it.cluster.condition("Ready")["status"] == "True"
    assert it.least == 1


def test_an_exchange_in_place_that_shrinks_to_one_replica_keeps_the_old_one_until_the_promotion() -> None:
    it = Small(2, promotion="Manual")
    green = it.edit()
    it.work(31)
    it.cluster.make_ready(green)
    assert it.work() == "AwaitingPromotion"
    it.replicas = 1
    it.cluster.edit(it.spec(2))
    it.work()
    assert it.cluster.weights() == {it.blue: 100}
    assert it.cluster.ready(it.blue) == 1


def test_a_canary_without_room_warns_that_its_steps_are_left_out() -> None:
    it = Small(2, strategy="Canary", canary={"steps": [{"weight": 1}]})
    it.edit()
    it.work(29)
    it.now += timedelta(seconds=2)
    [said] = [line for line in told(it) if "NoRoomBeside" in line]
    assert said.startswith("Warning NoRoomBeside")
    assert "rollout.canary.steps" in said
