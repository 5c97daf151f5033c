"""docs/concepts/rollouts.md: a rollout's way through its states, with gateways, prompts and figures, there and back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.rollout.evidence import Figures, Outcome, Verification

from ..rollout_stage import GOOD, PROMPTS, WATCHED, Rollout


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
    it.cluster.figures = {green: Figures(requests=50, errors=10)}
    epoch = it.cluster.status["traffic"]["epoch"]
    assert it.work(3) == "RollingBack"
    assert it.cluster.weights() == {it.blue: 100}
    assert it.cluster.status["traffic"]["epoch"] == epoch + 1
    assert it.rejected["reason"] == "ErrorRateTooHigh"
    assert "20.0% (10 of 50 requests)" in it.rejected["message"]
    it.cluster.follow()
    assert it.work() == "RolledBack"
    it.edit(1)
    assert it.cluster.state == "Idle"
    assert "rejected" not in it.cluster.status


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


def test_without_a_verdict_the_replica_that_most_failures_are_of_is_named_before_and_after() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    figures = Figures(requests=400, errors=40, clumping=100.0, worst=("chat-7f9c-abcde", 38))
    it.cluster.figures = {green: figures}
    it.work(30)
    (limit,) = it.cluster.status["rollout"]["observation"]["limits"]
    assert limit["said"].endswith("; 38 of the 40 failures are of replica chat-7f9c-abcde")
    it.cluster.figures = {green: replace(figures, seconds=601)}
    it.work(601)
    said = it.cluster.condition("Progressing")["message"]
    assert "no verdict after 600 s" in said
    assert "; most failures are of replica chat-7f9c-abcde; " in said


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
