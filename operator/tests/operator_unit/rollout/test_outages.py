"""docs/concepts/rollouts.md: time without an operator makes nothing overdue: each deadline counts what the present leader has seen."""

from __future__ import annotations

import pytest

from llmendpoint_operator.core.endpoint.steps import Apply
from llmendpoint_operator.core.rollout.evidence import Outcome, Verification

from ..rollout_stage import PROMPTS, Rollout
from ..room_stage import Small


def test_replicas_that_became_ready_without_an_operator_are_not_overdue() -> None:
    it = Small(2, capacity="Surge")
    green = it.edit()
    assert it.cluster.state == "Provisioning"
    it.cluster.room = 4
    it.cluster.run_deployments()
    it.cluster.make_ready(green)
    it.work(601)
    assert "rejected" not in it.cluster.status
    assert it.cluster.weights() == {green: 100}


def test_a_verification_has_its_time_anew_with_an_operator_that_begins_it_anew() -> None:
    it = Rollout(verification={"prompts": PROMPTS})
    green = it.edit()
    it.cluster.make_ready(green)
    assert it.work() == "Verifying"
    it.cluster.verifying = 0.5
    assert it.work(601) == "Verifying"
    assert it.cluster.plan(it.now).requeue_after == 599.5
    it.cluster.verification = Verification(green, Outcome.RUNNING, "prompt capital: judge: HTTP 503")
    it.cluster.verifying = 600
    assert it.work(600) == "RolledBack"
    assert it.rejected["reason"] == "ProgressDeadlineExceeded"


def died_before_it_made_room(it: Small, wave: int) -> str:
    """The operator, when it had told the status of this wave. All that is there is ready; the new revision."""
    green = it.edit()
    for _ in range(10):
        if it.cluster.status["rollout"]["step"] == wave - 1:
            break
        it.cluster.make_ready(green)
        it.work(1)
    it.cluster.make_ready(green)
    for step in it.cluster.plan(it.now).steps:
        if isinstance(step, Apply) and step.manifest["metadata"]["name"] == f"chat-{it.blue}":
            break
        it.cluster.do(step)
    assert it.cluster.status["rollout"]["step"] == wave
    assert it.cluster.replicas()[it.blue] == 5 - wave
    it.cluster.make_ready(green)
    return green


@pytest.mark.parametrize("wave", [2, 4])
def test_an_exchange_in_place_goes_on_where_an_operator_left_it(wave: int) -> None:
    it = Small(4, capacity="InPlace")
    green = died_before_it_made_room(it, wave)
    it.cluster.watched = 0.5
    it.work(601)
    assert "rejected" not in it.cluster.status
    for _ in range(4):
        it.cluster.make_ready(green)
        it.work(11)
    assert it.cluster.weights() == {green: 100}
    assert it.cluster.replicas() == {it.blue: 0, green: 4}


def test_an_exchange_in_place_that_stands_still_is_overdue_when_this_operator_has_seen_it_stand_still() -> (
    None
):
    it = Small(4, capacity="InPlace")
    green = died_before_it_made_room(it, 4)
    it.cluster.watched = 0.5
    it.work(601)
    it.cluster.pods[green][0]["status"]["conditions"][0]["status"] = "False"
    it.cluster.watched = 599.5
    it.work(599)
    assert "rejected" not in it.cluster.status
    it.cluster.watched = 600.5
    it.work(1)
    assert it.cluster.status["rejected"]["reason"] == "ProgressDeadlineExceeded"
