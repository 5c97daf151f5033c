"""docs/concepts/rollouts.md: an edit of a revision without a verdict goes back to blue; at zero an observation pauses."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.rollout.evidence import Figures, Outcome, Verification

from ..rollout_stage import GOOD, PROMPTS, WATCHED, Rollout

BAD = Figures(requests=4, errors=4, clumping=10)
"""Too few for a verdict."""


def scaled(it: Rollout, replicas: int) -> str:
    it.replicas = replicas
    seqs = it.cluster.spec.engine.max_num_seqs
    assert seqs is not None
    it.cluster.edit(it.spec(seqs))
    return it.work()


# --- edits


def test_when_the_edit_of_an_unproven_revision_fails_requests_are_with_the_one_before_both() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    it.switched(2)
    third = it.edit(3)
    it.cluster.make_ready(third)
    it.work()
    it.cluster.verification = Verification(third, Outcome.FAILED, "prompt capital: expected Paris, got Rome")
    it.work()
    it.cluster.follow()
    assert it.work() == "RolledBack"
    assert it.cluster.weights() == {it.blue: 100}
    assert {r for r, count in it.cluster.replicas().items() if count} >= {it.blue}


def test_a_revert_to_an_unproven_revision_observes_it_anew() -> None:
    it = Rollout(observe=WATCHED)
    second = it.switched(2)
    it.cluster.figures = {second: GOOD}
    it.work(50)
    it.cluster.make_ready(it.edit(3))
    assert it.edit(2) == second
    it.cluster.figures = {}
    it.cluster.follow()
    assert it.work() == "Observing"
    it.cluster.figures = {second: GOOD}
    assert it.work(55) == "Observing", "50 s of before do not count"
    assert it.work(6) == "Idle"
    assert it.cluster.active == second


def test_an_edit_of_a_canary_beyond_half_gives_it_no_more_requests() -> None:
    it = Rollout(strategy="Canary", canary={"steps": [{"weight": 60, "duration": 60}]})
    second = it.switched(2)
    assert it.cluster.weights() == {second: 60, it.blue: 40}
    it.edit(3)
    assert it.cluster.weights() == {it.blue: 100}


def test_an_edit_goes_on_from_the_unproven_revision_where_the_one_before_answers_no_more() -> None:
    it = Rollout()
    second = it.switched(2)
    for pod in it.cluster.pods[it.blue]:
        pod["status"]["conditions"][0]["status"] = "False"
    it.edit(3)
    assert it.cluster.status["rollout"]["blue"] == second
    assert it.cluster.weights() == {second: 100}


def test_an_edit_goes_on_from_the_unproven_revision_where_the_one_before_has_fewer_ready() -> None:
    it = Rollout()
    second = it.switched(2)
    it.cluster.pods[it.blue][0]["status"]["conditions"][0]["status"] = "False"
    it.edit(3)
    assert it.cluster.weights() == {second: 100}


# --- zero


def test_an_endpoint_that_goes_to_zero_gives_no_verdict_and_takes_no_pods() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    it.cluster.figures = {green: BAD}
    assert scaled(it, 0) == "Observing"
    assert it.cluster.replicas() == {it.blue: 0, green: 0}
    assert it.work(601) == "Observing"
    assert "no verdict after 600 s" in it.cluster.condition("Progressing")["message"]
    assert it.cluster.condition("Ready")["reason"] == "ScaledToZero"


def test_both_revisions_wake_up_and_the_observation_goes_on() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    it.cluster.figures = {green: BAD}
    scaled(it, 0)
    it.work(601)
    assert scaled(it, 1) == "Observing"
    assert it.cluster.replicas() == {it.blue: 1, green: 1}
    it.cluster.make_ready(green)
    it.cluster.figures = {green: Figures(requests=20, errors=20)}
    assert it.work() == "RollingBack"
    assert it.cluster.weights() == {green: 100}, "nobody else answers yet"
    it.cluster.make_ready(it.blue)
    it.work()
    it.cluster.follow()
    assert it.work() == "RolledBack"
    assert it.cluster.weights() == {it.blue: 100}


@pytest.mark.parametrize(("waited", "state"), [(30, "Observing"), (601, "RollingBack")])
def test_a_revision_that_wakes_up_later_than_the_one_before_is_not_lost_but_has_its_deadline(
    waited: float, state: str
) -> None:
    it = Rollout(observe=WATCHED)
    it.switched()
    scaled(it, 0)
    it.work(60)
    scaled(it, 1)
    made = it.now.isoformat()
    for pods in it.cluster.pods.values():
        pods[0]["metadata"]["creationTimestamp"] = made
    it.work(20)
    it.cluster.make_ready(it.blue)
    it.cluster.pods[it.blue][0]["status"]["conditions"][0]["lastTransitionTime"] = it.now.isoformat()
    assert it.work(waited) == state


def test_a_revision_that_is_gone_while_the_one_before_answers_is_lost_at_once() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    for pod in it.cluster.pods[it.blue]:
        pod["status"]["conditions"][0]["lastTransitionTime"] = it.now.isoformat()
    it.work(20)
    it.cluster.pods[green].clear()
    it.work()
    for pod in it.cluster.pods[green]:
        pod["metadata"]["creationTimestamp"] = it.now.isoformat()
    assert it.work() == "RollingBack"


def test_figures_that_suffice_are_judged_at_zero_too() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=20, errors=20)}
    assert scaled(it, 0) == "RollingBack"
    assert it.work(11) == "RolledBack"
    assert it.cluster.weights() == {it.blue: 100}
    assert it.cluster.replicas()[it.blue] == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_canary_does_not_pass_its_steps_at_zero(late: bool) -> None:
    """Nor when another operator, which has seen nothing, goes on with it."""
    steps = [{"weight": weight, "duration": 60} for weight in (10, 20, 30)]
    it = Rollout(strategy="Canary", canary={"steps": steps}, observe=WATCHED)
    green = it.switched()
    it.cluster.figures = {} if late else {green: BAD}
    it.cluster.watched = 0.1 if late else it.cluster.watched
    assert scaled(it, 0) == "Observing"
    assert it.cluster.status["rollout"]["step"] == 0
    assert it.cluster.replicas() == {it.blue: 0, green: 0}
    scaled(it, 1)
    assert it.cluster.replicas() == {it.blue: 1, green: 1}
    assert it.cluster.weights() == {it.blue: 90, green: 10}


@pytest.mark.parametrize(("action", "state"), [("promote", "Idle"), ("abort", "RolledBack")])
def test_a_paused_observation_ends_at_zero_by_request(action: str, state: str) -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    scaled(it, 0)
    it.work(601)
    assert it.ask(action, green)["outcome"] == "Accepted"
    assert it.work(11) == state
    assert it.cluster.weights() == {green if action == "promote" else it.blue: 100}
    assert set(it.cluster.replicas().values()) == {0}


def test_a_rollback_at_zero_does_not_wait_for_replicas_that_are_not_to_come() -> None:
    it = Rollout(observe=WATCHED)
    green = it.switched()
    scaled(it, 0)
    scaled(it, 1)
    it.cluster.make_ready(green)
    it.ask("abort", green)
    assert it.cluster.weights() == {green: 100}
    scaled(it, 0)
    assert it.work(11) == "RolledBack"
    it.work(31)
    assert it.cluster.weights() == {it.blue: 100}
    assert set(it.cluster.replicas().values()) == {0}


@pytest.mark.parametrize("rollout", [{}, {"strategy": "Canary", "canary": {"steps": [{"weight": 10}]}}])
def test_a_revision_that_is_switched_to_at_zero_is_taken_at_once_though_there_is_a_limit(
    rollout: dict[str, Any],
) -> None:
    it = Rollout(observe=WATCHED, **rollout)
    it.replicas = 0
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "Idle"
    assert it.cluster.active == green


def test_a_canary_of_many_steps_that_wait_for_nothing_takes_them_all() -> None:
    steps = [{"weight": weight, "duration": 0} for weight in range(1, 21)]
    it = Rollout(strategy="Canary", canary={"steps": steps}, observe={"duration": 0})
    it.cluster.gateways = {}
    green = it.edit()
    it.cluster.make_ready(green)
    it.work()
    assert it.cluster.weights() == {green: 100}
