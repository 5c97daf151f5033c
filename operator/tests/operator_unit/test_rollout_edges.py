"""Rollouts at their edges: two things at once, a late gateway, a cluster that is full, a change of mind."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from llmendpoint_operator.core.evidence import Outcome, Verification
from llmendpoint_operator.core.steps import events_of
from llmendpoint_operator.evidence.wanted import find_wanted

from . import test_rollout_capacity as capacity
from .fake_cluster import FakeCluster, make_spec
from .test_rollout_capacity import InPlace, Small
from .test_rollout_states import GOOD, PROMPTS, WATCHED, Rollout


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


def test_a_promotion_by_hand_that_is_asked_for_when_the_only_replica_has_made_room_is_not_waited_for() -> (
    None
):
    it = Small(1)
    green = it.edit()
    it.work(31)
    assert it.cluster.replicas()[it.blue] == 0
    it.rollout["promotion"] = "Manual"
    it.cluster.edit(it.spec(2))
    it.cluster.make_ready(green)
    assert it.work() != "AwaitingPromotion"
    assert it.cluster.weights() == {green: 100}


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


def late_gateway(it: Rollout, seqs: int) -> str:
    """A revision that gw-2 follows, and gw-1 does not."""
    green = it.edit(seqs)
    it.cluster.make_ready(green)
    it.work()
    it.cluster.gateways["gw-2"] = it.cluster.status["traffic"]["epoch"]
    it.work(11)
    return green


def test_pods_stay_at_rest_while_a_ready_gateway_still_sends_to_them() -> None:
    it = Rollout(scaleDownDelay=0)
    second = late_gateway(it, 2)
    assert it.cluster.state == "Observing"
    it.edit(3)
    assert it.edit(2) == second
    assert it.cluster.state == "Idle"
    assert it.work(600) == "Idle"
    assert it.cluster.weights() == {second: 100}
    assert it.cluster.replicas()[it.blue] == 2, "gw-1 sends to them"
    assert find_wanted(it.cluster.snapshot()) is not None, "the gateways are asked on"
    it.cluster.gateways_known = False
    it.work()
    assert it.cluster.replicas()[it.blue] == 2
    it.cluster.gateways_known = True
    it.cluster.follow()
    it.work()
    assert {revision for revision, count in it.cluster.replicas().items() if count} == {second}
    assert find_wanted(it.cluster.snapshot()) is None


def test_old_pods_go_when_gateways_that_could_send_to_them_were_not_ready_for_long() -> None:
    it = Rollout(scaleDownDelay=0)
    second = late_gateway(it, 2)
    it.edit(3)
    assert it.edit(2) == second
    it.cluster.gateways_known = False
    it.work(600)
    assert it.cluster.replicas()[it.blue] == 2, "a gateway that restarts may still send to them"
    it.cluster.gateways_lost = True
    it.work()
    assert {revision for revision, count in it.cluster.replicas().items() if count} == {second}


def test_an_observation_takes_nothing_for_good_because_the_gateways_are_lost() -> None:
    it = Rollout()
    late_gateway(it, 2)
    assert it.cluster.state == "Observing"
    it.cluster.gateways_known, it.cluster.gateways_lost = False, True
    assert it.work(20) == "Observing"


def test_a_first_revision_that_never_got_requests_makes_room_at_once() -> None:
    cluster = FakeCluster(gateways={"gw-1": None})
    cluster.settle()
    broken = cluster.target
    cluster.edit(make_spec(engine={"maxNumSeqs": 2}))
    cluster.settle()
    assert cluster.replicas() == {broken: 0, cluster.target: 1}


def test_the_last_pods_of_an_exchange_in_place_stay_until_every_gateway_has_left_them() -> None:
    it = Small(4, capacity="InPlace")
    it.cluster.gateways = {"gw-1": None, "gw-2": None}
    it.cluster.follow()
    green = it.edit()
    for _ in range(8):
        it.cluster.make_ready(green)
        it.cluster.gateways["gw-2"] = it.cluster.status["traffic"]["epoch"]
        it.work(11)
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.replicas() == {it.blue: 1, green: 4}
    it.cluster.follow()
    it.work()
    assert it.cluster.replicas() == {it.blue: 0, green: 4}
    it.cluster.make_ready(green)
    it.cluster.follow()
    assert it.work() == "Idle"


def test_pods_of_an_older_revision_in_an_exchange_in_place_stay_for_a_late_gateway_too() -> None:
    it = Small(4, capacity="InPlace")
    it.cluster.gateways = {"gw-1": None, "gw-2": None}
    it.cluster.follow()
    for seqs in (2, 3):
        green = it.edit(seqs)
        for _ in range(8):
            it.cluster.make_ready(green)
            it.cluster.gateways["gw-2"] = it.cluster.status["traffic"]["epoch"]
            it.work(11)
    assert it.cluster.replicas()[it.blue] == 1, "gw-1 follows the first assignment"
    for _ in range(8):
        it.cluster.make_ready(green)
        it.cluster.follow()
        it.work(11)
    assert it.cluster.weights() == {green: 100}
    assert {revision for revision, count in it.cluster.replicas().items() if count} == {green}


def test_a_restart_does_not_bring_back_what_was_undone() -> None:
    it = Rollout(observe={"duration": 0})
    undone = it.switched()
    it.work(20)
    it.ask("undo", it.blue)
    answer = it.ask("restart", it.blue, "r-2")
    assert answer["outcome"] == "Refused"
    assert answer["message"] == (
        f"an undo to revision {it.blue} holds, while the spec asks for {undone}; change the spec first"
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


def canary(*weights: int, **rollout: Any) -> Rollout:
    """Steps of 60 s each."""
    it = Rollout(strategy="Canary", canary={"steps": steps(*weights)}, **rollout)
    it.cluster.figures = {}
    return it


def steps(*weights: int) -> list[dict[str, int]]:
    return [{"weight": weight, "duration": 60} for weight in weights]


def at_second_step(*weights: int) -> tuple[Rollout, str]:
    """100 s into it, with figures that are good."""
    it = canary(*weights, observe={**WATCHED, "maxDuration": 3600})
    green = it.switched()
    it.cluster.figures = {green: GOOD}
    it.work(61)
    it.cluster.follow()
    it.work()
    it.cluster.figures = {}
    assert (it.work(100), it.cluster.weights()[green]) == ("Observing", weights[1])
    return it, green


@pytest.mark.parametrize(("edited", "weight"), [([10], 100), ([5, 40], 40), ([1, 2, 5], 2)])
def test_canary_steps_that_are_edited_in_mid_step_are_observed_from_the_start(
    edited: list[int], weight: int
) -> None:
    it, green = at_second_step(10, 25, 50)
    assert it.cluster.status["rollout"]["weight"] == 25
    window = find_wanted(it.cluster.snapshot())
    it.rollout["canary"] = {"steps": steps(*edited)}
    it.cluster.edit(it.spec(2))
    assert it.work() == "Switching"
    assert it.cluster.weights()[green] == weight
    assert it.cluster.status["rollout"]["weight"] == weight
    assert any(line.startswith("CanaryStepChanged") for line in it.told)
    it.cluster.follow()
    assert it.work() == "Observing"
    after = find_wanted(it.cluster.snapshot())
    assert window is not None
    assert after is not None
    assert after.window != window.window, "figures are counted anew"
    it.cluster.figures = {green: GOOD}
    assert it.work(55) == "Observing"
    assert it.cluster.replicas()[it.blue] == 2
    it.work(10)
    assert it.cluster.state in ("Switching", "Idle")


def test_later_steps_that_are_edited_change_nothing_now() -> None:
    it, green = at_second_step(10, 25, 50)
    before = it.cluster.status["rollout"]
    it.rollout["canary"] = {"steps": steps(10, 25, 75, 90)}
    it.cluster.edit(it.spec(2))
    assert it.work() == "Observing"
    assert it.cluster.status["rollout"] == before
    assert it.cluster.weights()[green] == 25


def test_a_canary_from_before_its_weight_was_recorded_goes_on() -> None:
    it, green = at_second_step(10, 25)
    del it.cluster.status["rollout"]["weight"]
    assert it.work() == "Observing"
    it.cluster.figures = {green: GOOD}
    assert it.work(1) == "Switching"
    assert it.cluster.status["rollout"]["weight"] == 100


def test_a_promotion_that_was_accepted_holds_though_a_pod_is_unready_at_that_moment() -> None:
    it = Rollout(promotion="Manual")
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "AwaitingPromotion"
    it.cluster.pods[green][0]["status"]["conditions"][0]["status"] = "False"
    assert it.ask("promote", green)["outcome"] == "Accepted"
    assert it.cluster.state == "Warming"
    assert it.cluster.weights() == {it.blue: 100}
    it.cluster.make_ready(green)
    assert it.work(5) == "Switching"
    assert it.cluster.weights() == {green: 100}


def test_a_promotion_takes_a_canary_for_good_at_whichever_step() -> None:
    it = canary(10, 25, observe=WATCHED)
    green = it.switched()
    assert it.cluster.weights() == {it.blue: 90, green: 10}
    answer = it.ask("promote", green)
    assert answer["outcome"] == "Accepted"
    assert "without further observation" in answer["message"]
    assert it.cluster.state == "Draining"
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.replicas() == {it.blue: 2, green: 2}
    it.cluster.follow()
    assert it.work(11) == "Idle"
    assert it.cluster.active == green


def test_a_promotion_is_not_lost_to_an_edit_of_the_steps() -> None:
    it, green = at_second_step(10, 25)
    it.rollout["canary"] = {"steps": steps(10, 40)}
    it.cluster.edit(it.spec(2))
    it.ask("promote", green)
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.state == "Draining"


def test_a_promotion_to_requests_is_not_one_for_good() -> None:
    it = Rollout(promotion="Manual", observe=WATCHED)
    it.cluster.gateways = {}
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    it.ask("promote", green)
    assert it.cluster.state == "Observing", "without a gateway nobody has to acknowledge"


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


class LateGateways(InPlace):
    """Exchanges in a full cluster whose gateways follow when they like."""

    def __init__(self) -> None:
        super().__init__()
        self.it.cluster.gateways = {"gw-1": None, "gw-2": None}
        self.it.cluster.follow()
        self.epochs: dict[int | None, dict[str, int]] = {}

    def reconcile(self, stop_after: int = 1000) -> None:
        cluster = self.it.cluster
        for step in cluster.plan(self.it.now).steps[:stop_after]:
            had = cluster.replicas()
            cluster.do(step)
            if "traffic" in cluster.status:
                self.epochs[cluster.status["traffic"]["epoch"]] = cluster.weights()
            if cluster.state not in ("RollingBack", "RolledBack"):
                self.check_gateways(had)

    def check_gateways(self, had: dict[str, int]) -> None:
        left = {revision for revision, count in self.it.cluster.replicas().items() if count}
        for name, epoch in self.it.cluster.gateways.items():
            pods = {revision for revision in self.epochs.get(epoch, {}) if had.get(revision)}
            assert not pods or pods & left, f"{name} sends requests to {pods}, whose pods went"

    @rule(count=st.integers(1, 4))
    def waves_come_up(self, count: int) -> None:
        for _ in range(count):
            self.it.cluster.make_ready(self.it.cluster.status.get("targetRevision", ""))
            self.reconcile()
            self.reconcile()
            self.it.now += timedelta(seconds=11)

    @rule(name=st.sampled_from(["gw-1", "gw-2"]))
    def a_gateway_follows(self, name: str) -> None:
        self.it.cluster.gateways[name] = self.it.cluster.status.get("traffic", {}).get("epoch")

    def teardown(self) -> None:
        for _ in range(20):
            self.it.cluster.follow()
            for revision in list(self.it.cluster.pods):
                self.it.cluster.make_ready(revision)
            self.reconcile()
            self.it.now += timedelta(seconds=5)
        self.it.cluster.follow()
        super().teardown()


TestLateGateways = LateGateways.TestCase
TestLateGateways.settings = settings(capacity.TestInPlace.settings)
