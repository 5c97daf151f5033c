"""docs/concepts/rollouts.md: what `promote`, `abort`, `undo` and `restart` do to a rollout."""

from __future__ import annotations

from llmendpoint_operator.api import LLMRuntimeSpec
from llmendpoint_operator.core.endpoint.snapshot import Request
from llmendpoint_operator.core.rollout.evidence import Figures, Outcome, Verification

from ..fake_cluster import RUNTIME
from ..rollout_stage import PROMPTS, Rollout


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


def test_an_abort_names_its_revision_and_rejects_it() -> None:
    it = Rollout()
    green = it.edit()
    assert it.ask("abort", it.blue)["outcome"] == "Refused"
    answer = it.ask("abort", green, "r-2")
    assert answer == {
        "id": "r-2", "action": "abort", "outcome": "Accepted", "message": f"revision {green} is aborted",
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
