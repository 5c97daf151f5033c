"""A rollout's way through its states, with gateways, prompts, figures and requests."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from llmendpoint_operator.api import LLMRuntimeSpec
from llmendpoint_operator.core.evidence import Figures, Outcome, Verification
from llmendpoint_operator.core.snapshot import Request
from llmendpoint_operator.core.steps import events_of

from .fake_cluster import NOW, RUNTIME, FakeCluster, make_spec

PROMPTS = [{"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}]
GOOD = Figures(requests=100, errors=1, ttft_p95=0.2)
WATCHED = {"errorRate": {"max": 0.02}}


class Rollout:
    """A first revision that serves with two replicas through two gateways, and an edit of it."""

    def __init__(self, replicas: int = 2, **rollout: Any) -> None:
        self.rollout, self.replicas = rollout, replicas
        self.cluster = FakeCluster(self.spec(1), gateways={"gw-1": None, "gw-2": None})
        self.now: datetime = NOW
        self.told: list[str] = []
        self.work()
        self.cluster.make_ready(self.cluster.target)
        self.cluster.verification = Verification(self.cluster.target, Outcome.PASSED)
        self.work()
        self.cluster.follow()
        self.work(20)
        assert self.cluster.state == "Idle"
        self.blue = str(self.cluster.active)
        self.told.clear()

    def spec(self, seqs: int) -> Any:
        return make_spec(replicas=self.replicas, engine={"maxNumSeqs": seqs}, rollout=self.rollout)

    def edit(self, seqs: int = 2) -> str:
        """The new revision's hash."""
        self.cluster.edit(self.spec(seqs))
        self.work()
        self.cluster.verification = None
        return self.cluster.target

    def work(self, after: float = 0) -> str:
        """Let the operator work until nothing is left, `after` seconds later; the state."""
        self.now += timedelta(seconds=after)
        for _ in range(10):
            plan = self.cluster.plan(self.now)
            for step in plan.steps:
                self.cluster.do(step)
                self.told += [f"{event.reason}: {event.message}" for event in events_of(step)]
            if not plan.steps:
                return self.cluster.state
        raise AssertionError("still writing")

    def switched(self, seqs: int = 2) -> str:
        """To where the new revision gets requests and every gateway follows."""
        green = self.edit(seqs)
        self.cluster.make_ready(green)
        self.cluster.verification = Verification(green, Outcome.PASSED)
        self.work()
        self.cluster.follow()
        self.work()
        return green

    def ask(self, action: str, revision: str | None, id_: str = "r-1") -> dict[str, Any]:
        """Annotate, and let it be answered."""
        self.cluster.request = Request(id_, action, revision)
        self.work()
        return dict(self.cluster.status["request"])

    @property
    def rejected(self) -> dict[str, Any]:
        return dict(self.cluster.status["rejected"])


def test_a_good_revision_goes_all_the_way() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    green = it.edit()
    assert it.cluster.state == "Warming"
    it.cluster.make_ready(green)
    assert it.work() == "Verifying"
    assert it.cluster.weights() == {it.blue: 100}
    it.cluster.verification = Verification(green, Outcome.PASSED)
    epoch = it.cluster.status["traffic"]["epoch"]
    assert it.work() == "Switching"
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.status["traffic"]["epoch"] == epoch + 1
    it.cluster.follow()
    assert it.work() == "Observing"
    assert it.cluster.replicas() == {it.blue: 2, green: 2}
    it.cluster.figures = {green: GOOD}
    assert it.work(30) == "Observing"
    assert it.work(31) == "Idle"
    assert it.cluster.replicas() == {it.blue: 0, green: 2}
    reasons = [told.split(":")[0] for told in it.told]
    wanted = ["RolloutStarted", "RevisionVerified", "RevisionActivated", "RevisionConfirmed"]
    assert [reason for reason in reasons if reason in wanted] == wanted


def test_blue_keeps_its_pods_until_the_last_ready_gateway_follows_or_is_gone() -> None:
    it = Rollout(observe={"duration": 0})
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "Switching"
    it.cluster.gateways["gw-1"] = it.cluster.status["traffic"]["epoch"]
    assert it.work(9) == "Switching"
    assert it.work(2) == "Draining"
    assert any("gw-2" in told for told in it.told if told.startswith("GatewaysLate"))
    assert it.work(600) == "Draining"
    assert it.cluster.replicas()[it.blue] == 2
    del it.cluster.gateways["gw-2"]
    assert it.work() == "Idle"
    assert it.cluster.replicas()[it.blue] == 0


def test_a_wrong_answer_rejects_before_any_request() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    it.cluster.verification = Verification(green, Outcome.FAILED, "prompt capital: expected Paris, got Rome")
    assert it.work() == "RolledBack"
    assert it.cluster.weights() == {it.blue: 100}
    assert it.rejected["reason"] == "VerificationFailed"
    assert "got Rome" in it.cluster.condition("Stalled")["message"]
    assert it.cluster.condition("Stalled")["reason"] == "RevisionRejected"
    assert it.cluster.condition("Ready")["status"] == "True"
    assert it.cluster.status["observedGeneration"] == it.cluster.generation
    assert it.cluster.replicas()[green] == 2
    assert it.work(31) == "RolledBack"
    assert it.cluster.replicas()[green] == 0
    assert it.cluster.plan(it.now + timedelta(days=1)).steps == ()


def test_a_breach_switches_back_at_once_and_names_the_figure() -> None:
    it = Rollout()
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=50, errors=5)}
    epoch = it.cluster.status["traffic"]["epoch"]
    assert it.work(3) == "RollingBack"
    assert it.cluster.weights() == {it.blue: 100}
    assert it.cluster.status["traffic"]["epoch"] == epoch + 1
    assert it.rejected["reason"] == "ErrorRateTooHigh"
    assert "10.0% (5 of 50 requests)" in it.rejected["message"]
    it.cluster.follow()
    assert it.work() == "RolledBack"
    it.edit(1)
    assert it.cluster.state == "Idle"
    assert "rejected" not in it.cluster.status


def test_a_rejected_revision_comes_back_only_when_asked_for_anew() -> None:
    it = Rollout()
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=50, errors=50)}
    it.work(3)
    it.cluster.follow()
    it.work(40)
    it.cluster.figures = {}
    assert it.ask("undo", green)["outcome"] == "Refused"
    assert it.ask("restart", green, "r-2")["outcome"] == "Accepted"
    assert it.cluster.target not in (green, it.blue)
    assert it.cluster.state == "Warming"


def test_a_crash_after_the_switch_needs_no_figures() -> None:
    it = Rollout()
    green = it.switched()
    pod = it.cluster.pods[green][0]
    crashed = (it.now + timedelta(seconds=1)).isoformat()
    pod["status"]["conditions"][0] |= {"status": "False", "lastTransitionTime": crashed}
    ended = {"exitCode": 1, "message": "CUDA error", "finishedAt": crashed}
    pod["status"]["containerStatuses"] = [{"name": "engine", "state": {"terminated": ended}}]
    assert it.work(1) == "RollingBack"
    assert it.rejected["reason"] == "RevisionCrashed"
    assert "CUDA error" in it.rejected["message"]


@pytest.mark.parametrize(
    ("observe", "expected", "after"),
    [
        ({}, "Idle", 61),
        (WATCHED, "Observing", 61),
        (WATCHED, "Observing", 601),
        ({**WATCHED, "onInconclusive": "Promote"}, "Idle", 601),
        ({**WATCHED, "onInconclusive": "Rollback"}, "RollingBack", 601),
        ({"onInconclusive": "Pause"}, "Observing", 601),
    ],
)
def test_too_little_traffic_is_no_verdict(observe: dict[str, Any], expected: str, after: float) -> None:
    it = Rollout(observe=observe)
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=3)}
    it.work(after - 1.5)
    assert it.work(1.5) == expected


def test_a_paused_observation_is_told_once_and_ends_by_promotion() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    it.work(601)
    assert "no verdict after 600 s" in it.cluster.condition("Progressing")["message"]
    assert it.work(5000) == "Observing"
    assert sum(told.startswith("Inconclusive") for told in it.told) == 1
    assert it.ask("promote", green)["outcome"] == "Accepted"
    assert it.cluster.state == "Idle"


def test_a_manual_promotion_waits_without_a_deadline() -> None:
    it = Rollout(promotion="Manual", verification={"prompts": PROMPTS})
    green = it.edit()
    it.cluster.make_ready(green)
    it.cluster.verification = Verification(green, Outcome.PASSED)
    assert it.work() == "AwaitingPromotion"
    assert it.work(100_000) == "AwaitingPromotion"
    assert it.ask("promote", it.blue)["outcome"] == "Refused"
    assert it.cluster.state == "AwaitingPromotion"
    assert it.ask("promote", green, "r-2")["outcome"] == "Accepted"
    assert it.cluster.weights() == {green: 100}


def test_a_revision_that_never_gets_ready_is_given_up_after_the_deadline() -> None:
    it = Rollout()
    green = it.edit()
    assert it.work(599) == "Warming"
    assert it.work(2) == "RolledBack"
    assert it.rejected["reason"] == "ProgressDeadlineExceeded"
    assert it.rejected["revision"] == green
    assert it.cluster.weights() == {it.blue: 100}


def test_a_canary_gets_its_shares_and_the_whole_at_last() -> None:
    steps = [{"weight": 10, "duration": 60}, {"weight": 50, "duration": 60}]
    it = Rollout(strategy="Canary", canary={"steps": steps})
    green = it.edit()
    it.cluster.make_ready(green)
    it.cluster.figures = {green: GOOD}
    seen = []
    for _ in range(4):
        it.work()
        seen.append(it.cluster.weights().get(green))
        it.cluster.follow()
        it.work()
        it.work(62)
    assert seen == [10, 50, 100, 100]
    assert it.work(62) == "Idle"


def test_a_canary_that_breaks_a_limit_loses_its_share() -> None:
    it = Rollout(strategy="Canary", canary={"steps": [{"weight": 10, "duration": 60}]})
    green = it.switched()
    assert it.cluster.weights() == {it.blue: 90, green: 10}
    assert it.cluster.active == it.blue
    it.cluster.figures = {green: Figures(requests=20, errors=20)}
    it.work(2)
    assert it.cluster.weights() == {it.blue: 100}


def test_an_edit_while_observing_starts_from_who_was_observed_before() -> None:
    it = Rollout()
    second = it.switched()
    third = it.edit(3)
    assert it.cluster.state == "Warming"
    assert it.cluster.status["rollout"]["blue"] == it.blue
    assert it.cluster.weights() == {it.blue: 100}
    assert it.cluster.replicas() == {it.blue: 2, second: 2, third: 2}
    assert it.work(11) == "Warming"
    assert it.cluster.replicas() == {it.blue: 2, second: 2, third: 2}, "a gateway still sends to it"
    it.cluster.follow()
    it.work()
    assert it.cluster.replicas() == {it.blue: 2, second: 0, third: 2}


@pytest.mark.parametrize("switched", [False, True])
def test_a_revert_goes_back_quietly(switched: bool) -> None:
    it = Rollout()
    green = it.switched() if switched else it.edit()
    it.edit(1)
    it.cluster.follow()
    assert it.work() == "Idle"
    assert it.cluster.weights() == {it.blue: 100}
    assert "rejected" not in it.cluster.status
    it.work(11)
    assert it.cluster.replicas() == {it.blue: 2, green: 0}


def test_an_abort_names_its_revision_and_rejects_it() -> None:
    it = Rollout()
    green = it.edit()
    assert it.ask("abort", it.blue)["outcome"] == "Refused"
    answer = it.ask("abort", green, "r-2")
    assert answer == {
        "id": "r-2", "action": "abort", "outcome": "Accepted", "message": f"revision {green} is given up",
    }  # fmt: skip
    assert it.cluster.state == "RolledBack"
    assert it.rejected["reason"] == "Aborted"
    assert it.ask("abort", green, "r-3")["outcome"] == "Refused"


def test_an_undo_alone_brings_back_no_revision_of_another_spec() -> None:
    """Whatever the spec was when it was made: a policy of today may refuse it."""
    it = Rollout(observe={"duration": 0})
    green = it.switched()
    it.work(20)
    assert it.ask("undo", "nosuch")["outcome"] == "Refused"
    refused = it.ask("undo", it.blue, "r-2")
    assert refused["outcome"] == "Refused"
    assert "was made from another spec" in refused["message"]
    assert it.cluster.target == green
    assert it.cluster.replicas()[green] == 2


def test_an_undo_with_its_spec_goes_back_to_the_revision_that_is_kept() -> None:
    it = Rollout(observe={"duration": 0})
    green = it.switched()
    it.work(20)
    it.cluster.request = Request("r-1", "undo", it.blue)
    assert it.edit(1) == it.blue
    assert it.cluster.status["request"]["outcome"] == "Accepted"
    it.cluster.make_ready(it.blue)
    it.work()
    it.cluster.follow()
    assert it.work(20) == "Idle"
    assert it.cluster.weights() == {it.blue: 100}
    assert "override" not in it.cluster.status, "the spec says it"
    assert it.edit(3) not in (it.blue, green)


def test_a_restart_is_undone_without_an_edit_until_the_spec_changes() -> None:
    it = Rollout(observe={"duration": 0})
    assert it.ask("restart", it.blue)["outcome"] == "Accepted"
    it.cluster.make_ready(it.cluster.target)
    it.work()
    it.cluster.follow()
    it.work(20)
    assert it.ask("undo", it.blue, "r-2")["outcome"] == "Accepted"
    assert it.cluster.target == it.blue
    it.edit(3)
    assert "override" not in it.cluster.status


def test_a_restart_makes_a_revision_from_the_runtime_as_it_is_now_and_survives_a_lost_status() -> None:
    it = Rollout(observe={"duration": 0})
    it.cluster.runtime = LLMRuntimeSpec.model_validate(
        {**RUNTIME.model_dump(by_alias=True), "image": "engine:2"}
    )
    assert it.work() == "Idle"
    assert it.ask("restart", it.blue)["outcome"] == "Accepted"
    made = it.cluster.target
    template = it.cluster.by_revision("Deployment")[made]["spec"]["template"]["spec"]
    assert template["containers"][0]["image"] == "engine:2"
    it.cluster.make_ready(made)
    it.work()
    it.cluster.follow()
    assert it.work(20) == "Idle"
    it.cluster.status, it.cluster.version = {}, it.cluster.version + 1
    for request in (it.cluster.request, None):
        it.cluster.request = request
        assert it.work() == "Idle"
        assert it.cluster.active == it.cluster.target == made


def test_a_lost_status_gives_an_epoch_that_no_gateway_has_seen() -> None:
    it = Rollout()
    before = it.cluster.status["traffic"]["epoch"]
    it.cluster.status, it.cluster.version = {}, it.cluster.version + 1
    it.work()
    assert it.cluster.status["traffic"]["epoch"] > before
    assert it.cluster.weights() == {it.blue: 100}


def test_an_endpoint_at_zero_starts_one_replica_to_verify_and_goes_back() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    it.replicas = 0
    green = it.edit()
    assert it.cluster.replicas() == {it.blue: 0, green: 1}
    it.cluster.make_ready(green)
    it.cluster.verification = Verification(green, Outcome.PASSED)
    assert it.work() == "Idle", "no gateway can follow to no replica"
    assert it.cluster.active == green
    assert it.cluster.replicas() == {it.blue: 0, green: 0}


def test_green_follows_the_scaler_until_the_switch_and_blue_is_frozen_after() -> None:
    it = Rollout()
    green = it.edit()
    it.cluster.edit(it.cluster.spec.model_copy(update={"replicas": 3}))
    it.work()
    assert it.cluster.replicas() == {it.blue: 3, green: 3}
    it.cluster.make_ready(green)
    it.work()
    it.cluster.edit(it.cluster.spec.model_copy(update={"replicas": 4}))
    it.work()
    assert it.cluster.replicas() == {it.blue: 3, green: 4}
