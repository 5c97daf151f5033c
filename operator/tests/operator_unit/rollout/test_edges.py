"""docs/concepts/rollouts.md: two edits at once, a full cluster or a change of mind take away no replica that answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.steps import events_of
from llmendpoint_operator.core.rollout.evidence import Outcome, Verification

from ..fake_cluster import FakeCluster, make_spec
from ..rollout_stage import PROMPTS, Rollout
from ..room_stage import Small


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
    it.work(6000)
    assert "rejected" not in it.cluster.status
    assert "nvidia.com/gpu" in it.cluster.condition("Degraded")["message"]
    assert it.cluster.condition("Ready")["status"] == "True"
    assert it.least == 1


def test_a_promotion_by_hand_that_is_asked_for_when_the_only_replica_has_made_room_is_not_waited_for() -> (
    None
):
    it = Small(1, capacity="Recreate")
    green = it.edit()
    assert it.cluster.replicas()[it.blue] == 0
    it.rollout |= {"capacity": "Auto", "promotion": "Manual"}
    it.cluster.edit(it.spec(2))
    it.cluster.make_ready(green)
    assert it.work() != "AwaitingPromotion"
    assert it.cluster.weights() == {green: 100}


def test_an_exchange_in_place_that_shrinks_to_one_replica_keeps_the_old_one_until_the_promotion() -> None:
    it = Small(2, promotion="Manual")
    green = it.edit()
    it.work(601)
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
    it.work(599)
    it.now += timedelta(seconds=2)
    [said] = [line for line in told(it) if "NoRoomBeside" in line]
    assert said.startswith("Warning NoRoomBeside")
    assert "rollout.canary.steps" in said


def test_a_first_revision_that_never_got_requests_makes_room_at_once() -> None:
    cluster = FakeCluster(gateways={"gw-1": None})
    cluster.settle()
    broken = cluster.target
    cluster.edit(make_spec(engine={"maxNumSeqs": 2}))
    cluster.settle()
    assert cluster.replicas() == {broken: 0, cluster.target: 1}


def test_a_restart_does_not_bring_back_what_was_undone() -> None:
    """An undo of before an upgrade, when it left the spec as it was."""
    it = Rollout(observe={"duration": 0})
    undone = it.switched()
    it.work(20)
    it.cluster.status |= {"override": {"inputs": undone, "revision": it.blue}}
    it.work()
    answer = it.ask("restart", it.blue, "r-2")
    assert answer["outcome"] == "Refused"
    assert answer["message"] == (
        f"an undo to revision {it.blue} is in effect, while the spec asks for {undone}; change the spec first"
    )
    assert it.cluster.target == it.blue
    it.edit(1)
    it.edit(3)
    assert it.ask("restart", None, "r-3")["outcome"] == "Accepted"


def test_a_restarted_revision_can_be_restarted_again_and_undone_to() -> None:
    it = Rollout(observe={"duration": 0})
    for id_ in ("r-1", "r-2"):
        assert it.ask("restart", None, id_)["outcome"] == "Accepted"
        it.cluster.make_ready(it.cluster.target)
        it.work()
        it.cluster.follow()
        it.work(20)
    assert it.ask("undo", it.blue, "r-3")["outcome"] == "Accepted"
    assert it.ask("restart", it.blue, "r-4")["outcome"] == "Accepted", "it has what the spec asks for"


@pytest.mark.parametrize("limit", [0, 1])
def test_a_restart_after_an_edit_keeps_no_revision_beyond_the_history_limit(limit: int) -> None:
    it = Rollout(observe={"duration": 0})
    edited = make_spec(replicas=2, revisionHistoryLimit=limit, engine={"maxNumSeqs": 2}, rollout=it.rollout)
    it.cluster.edit(edited)
    it.work()
    assert it.ask("restart", None)["outcome"] == "Accepted"
    it.cluster.make_ready(it.cluster.target)
    it.work()
    it.cluster.follow()
    assert it.work(700) == "Idle"
    assert it.cluster.active == it.cluster.target != it.blue
    assert len(it.cluster.by_revision("ControllerRevision")) == 1 + limit


def test_an_abort_does_not_hit_the_revision_of_an_edit_at_the_same_moment() -> None:
    it = Rollout()
    green = it.edit()
    it.cluster.edit(it.spec(3))
    assert it.ask("abort", green)["outcome"] == "Accepted"
    assert it.cluster.state == "Warming"
    assert "rejected" not in it.cluster.status


def unready(it: Rollout, revision: str) -> None:
    it.cluster.pods[revision][0]["status"]["conditions"][0]["status"] = "False"


@pytest.mark.parametrize("prompts", [[], PROMPTS])
def test_pods_that_come_and_go_before_an_automatic_promotion_are_given_up_at_the_deadline(
    prompts: list[dict[str, Any]],
) -> None:
    relative = {"duration": 30, "ttft": {"maxRatio": 1.5}}
    it = Rollout(observe=relative, verification={"prompts": prompts})
    green = it.edit()
    seen = set()
    for _ in range(30):
        it.cluster.make_ready(green)
        seen.add(it.work(10))
        if it.cluster.state == "RolledBack":
            break
        unready(it, green)
        seen.add(it.work(20))
    assert seen == {"Warming", "Verifying" if prompts else "AwaitingPromotion", "RolledBack"}
    assert it.rejected["reason"] == "ProgressDeadlineExceeded"
    assert it.cluster.weights() == {it.blue: 100}


def test_what_was_waited_for_a_promotion_by_hand_does_not_count_and_what_was_not_does() -> None:
    it = Rollout(promotion="Manual")
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work(500) == "AwaitingPromotion"
    unready(it, green)
    assert it.work(100_000) == "Warming"
    assert it.work(400) == "Warming"
    it.cluster.make_ready(green)
    assert it.work() == "AwaitingPromotion"
    unready(it, green)
    assert it.work(100_000) == "Warming"
    assert it.work(199) == "Warming"
    assert it.work(2) == "RolledBack"


def test_a_verification_has_a_deadline_of_its_own_and_its_own_words() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work(500) == "Verifying"
    problem = "prompt capital: judge team-b/judge: HTTP 503: loading"
    it.cluster.verification = Verification(green, Outcome.RUNNING, problem)
    assert it.work(200) == "Verifying"
    assert it.cluster.status["rollout"]["message"] == problem
    assert it.cluster.condition("Progressing")["message"] == problem
    assert it.cluster.plan(it.now).requeue_after == 400
    it.cluster.verification = Verification(green, Outcome.RUNNING)
    it.work()
    assert "message" not in it.cluster.status["rollout"]
    it.cluster.verification = Verification(green, Outcome.RUNNING, problem)
    assert it.work(401) == "RolledBack"
    assert it.rejected["reason"] == "ProgressDeadlineExceeded"
    assert it.rejected["message"] == f"not verified within 600 s (spec.progressDeadlineSeconds): {problem}"
