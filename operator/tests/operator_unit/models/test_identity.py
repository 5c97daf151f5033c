"""docs/concepts/models.md: the commit of a revision is recorded before its first pod, and every pod of it loads that commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llmendpoint_operator.api import LLMRuntimeSpec
from llmendpoint_operator.core.endpoint.plan import Apply, Plan, WriteStatus, make_plan
from llmendpoint_operator.core.endpoint.snapshot import Observed
from llmendpoint_operator.core.models.identity import HubModel, Identity, split_hub
from llmendpoint_operator.core.models.tasks import Awaited
from llmendpoint_operator.core.pods.revision import parse_revision, revision_hash
from llmendpoint_operator.core.rollout.target import unresolved

from ..fake_cluster import NOW, FakeCluster, make_spec

FIRST, SECOND = "1" * 40, "2" * 40
SPEC = make_spec(model={"source": "hf://acme/demo@v1"})
HASH = revision_hash(SPEC)
RUNTIME = LLMRuntimeSpec.model_validate(
    {
        "image": "engine:1",
        "args": [
            {"value": "--model=$(model.path)"},
            {"value": "--revision=$(model.revision)", "when": "model.revision"},
        ],
    }
)


def cluster() -> FakeCluster:
    return FakeCluster(spec=SPEC, runtime=RUNTIME)


def plan(fake: FakeCluster, **identity: Any) -> Plan:
    awaited = Awaited(HASH, Identity(**identity) if identity else None)
    return make_plan(replace(fake.snapshot(), observed=Observed(awaited=awaited)), NOW)


def applied(found: Plan) -> list[str]:
    return [step.manifest["kind"] for step in found.steps if isinstance(step, Apply)]


def ready_reason(found: Plan) -> str:
    [status] = [step.status for step in found.steps if isinstance(step, WriteStatus)]
    return str(next(c["reason"] for c in status["conditions"] if c["type"] == "Ready"))


def test_nothing_is_made_before_the_commit_is_known_and_the_status_says_what_is_awaited() -> None:
    fake = cluster()
    assert unresolved(fake.snapshot()) == (HASH, SPEC)
    assert split_hub(SPEC.model.source) == HubModel("acme/demo", "v1")
    waiting = plan(fake)
    assert "Deployment" not in applied(waiting)
    assert "ControllerRevision" not in applied(waiting)
    assert ready_reason(waiting) == "ModelResolving"
    assert ready_reason(plan(fake, problem="the hub answers 404", permanent=True)) == "ModelNotResolved"


def test_the_commit_is_recorded_before_anything_is_served_and_every_later_pass_renders_it() -> None:
    fake = cluster()
    made = plan(fake, commit=FIRST)
    kinds = applied(made)
    assert "ControllerRevision" in kinds
    manifests = {step.manifest["kind"]: step.manifest for step in made.steps if isinstance(step, Apply)}
    [engine] = manifests["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert engine["args"] == ["--model=hf://acme/demo", f"--revision={FIRST}"]
    recorded = parse_revision(manifests["ControllerRevision"])
    assert recorded is not None
    assert recorded.commit == FIRST
    for step in made.steps:
        fake.do(step)
    assert unresolved(fake.snapshot()) is None
    assert "Deployment" not in applied(plan(fake))
    assert "Deployment" not in applied(plan(fake, commit=SECOND))


def test_other_sources_ask_no_hub() -> None:
    assert unresolved(FakeCluster(spec=make_spec(), runtime=RUNTIME).snapshot()) is None
