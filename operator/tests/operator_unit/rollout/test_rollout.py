"""docs/concepts/rollouts.md: which revision gets requests from an edit to the switch, and which keeps its pods until when."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from llmendpoint_operator.api import LLMRuntimeSpec
from llmendpoint_operator.core.endpoint.plan import Apply, Delete, WriteStatus
from llmendpoint_operator.core.names import REVISION_LABEL

from ..fake_cluster import NOW, RUNTIME, FakeCluster, loading_pod, make_spec

LATER = NOW + timedelta(seconds=11)


@pytest.fixture
def serving() -> FakeCluster:
    """Two replicas of a first revision, ready."""
    cluster = FakeCluster(make_spec(replicas=2))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    return cluster


def selected(cluster: FakeCluster) -> str:
    return str(cluster.objects["Service", "chat"]["spec"]["selector"][REVISION_LABEL])


def test_a_first_apply_makes_the_children_in_a_safe_order() -> None:
    plan = FakeCluster().plan()
    kinds = [step.manifest["kind"] if isinstance(step, Apply) else "status" for step in plan.steps]
    before = ["ServiceAccount", "Deployment", "Service", "ControllerRevision"]
    assert kinds == [*before, "status", "Service", "PodDisruptionBudget"]


def test_nothing_is_active_and_the_service_selects_no_pod_before_the_first_is_ready() -> None:
    cluster = FakeCluster()
    cluster.settle()
    assert cluster.active is None
    assert selected(cluster) == "none"
    assert cluster.condition("Ready")["status"] == "False"


def test_the_first_ready_pod_of_a_first_rollout_gets_requests() -> None:
    cluster = FakeCluster(make_spec(replicas=3))
    cluster.settle()
    cluster.make_ready(cluster.target, 1)
    cluster.settle()
    assert cluster.active == cluster.target == selected(cluster)
    assert cluster.condition("Ready")["reason"] == "SomeReplicasReady"
    assert cluster.condition("Reconciling")["status"] == "True"


def test_a_settled_endpoint_gets_no_write(serving: FakeCluster) -> None:
    assert serving.plan(LATER).steps == ()
    assert serving.plan(LATER).requeue_after is None


def test_an_edit_brings_a_revision_up_beside_the_old_with_the_same_count(serving: FakeCluster) -> None:
    old = serving.active
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    assert serving.active == old
    assert serving.replicas() == {old: 2, serving.target: 2}
    assert serving.condition("Ready")["status"] == "True"
    assert serving.condition("Progressing")["reason"] == "NewRevision"


def test_the_switch_waits_for_all_new_replicas(serving: FakeCluster) -> None:
    old = serving.active
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    serving.make_ready(serving.target, 1)
    serving.settle(LATER)
    assert serving.active == old
    serving.make_ready(serving.target, 2)
    serving.settle(LATER)
    assert serving.active == serving.target != old


def test_a_switch_is_written_to_the_status_before_the_service_follows(serving: FakeCluster) -> None:
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    serving.make_ready(serving.target)
    first, second, *_ = serving.plan(LATER).steps
    assert isinstance(first, WriteStatus)
    assert first.status["activeRevision"] == serving.target
    assert isinstance(second, Apply)
    assert second.manifest["metadata"]["name"] == "chat"


def test_the_old_revision_keeps_its_pods_for_the_delay_and_then_none(serving: FakeCluster) -> None:
    old = str(serving.active)
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    serving.make_ready(serving.target)
    plan = serving.reconcile(LATER)
    assert plan.requeue_after == pytest.approx(10)
    assert serving.replicas()[old] == 2
    serving.settle(LATER + timedelta(seconds=9))
    assert serving.replicas()[old] == 2
    serving.settle(LATER + timedelta(seconds=10))
    assert serving.replicas()[old] == 0
    assert old in serving.by_revision("ControllerRevision")


def test_a_revert_reuses_the_old_revision(serving: FakeCluster) -> None:
    first, first_spec = str(serving.active), serving.spec
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    serving.make_ready(serving.target)
    serving.settle(LATER)
    serving.settle(LATER + timedelta(seconds=20))
    names = set(serving.objects)
    serving.edit(first_spec)
    serving.settle(LATER + timedelta(seconds=20))
    assert serving.target == first
    assert set(serving.objects) == names, "a revert makes no new object"
    assert serving.by_revision("ControllerRevision")[first]["revision"] == 3
    serving.make_ready(first)
    serving.settle(LATER + timedelta(seconds=20))
    assert serving.active == first


def test_an_edit_supersedes_a_stuck_revision(serving: FakeCluster) -> None:
    first = str(serving.active)
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    stuck = serving.target
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 8}))
    serving.settle(LATER)
    assert serving.replicas() == {first: 2, stuck: 0, serving.target: 2}


def test_a_broken_active_revision_yields_to_the_first_ready_pod(serving: FakeCluster) -> None:
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    for pod in serving.pods[str(serving.active)]:
        pod["status"]["conditions"][0]["status"] = "False"
    serving.make_ready(serving.target, 1)
    serving.settle(LATER)
    assert serving.active == serving.target


def test_scaling_makes_no_revision_and_zero_is_ready(serving: FakeCluster) -> None:
    serving.edit(make_spec(replicas=0))
    serving.settle(LATER)
    assert serving.replicas() == {serving.active: 0}
    assert serving.condition("Ready") | {"lastTransitionTime": ""} == {
        "type": "Ready", "status": "True", "observedGeneration": 2, "lastTransitionTime": "", "reason": "ScaledToZero",
        "message": "spec.replicas is 0; raise it to serve requests",
    }  # fmt: skip


def test_old_revisions_beyond_the_limit_are_deleted_oldest_first(serving: FakeCluster) -> None:
    hashes = [str(serving.active)]
    evicted = loading_pod("chat-evicted")
    evicted["status"] = {"phase": "Failed", "reason": "Evicted"}
    serving.pods[hashes[0]].append(evicted)
    for count in range(1, 4):
        now = NOW + timedelta(minutes=count)
        serving.edit(make_spec(replicas=2, revisionHistoryLimit=2, engine={"maxNumSeqs": count}))
        serving.settle(now)
        serving.make_ready(serving.target)
        serving.settle(now)
        serving.settle(now + timedelta(seconds=20))
        hashes.append(str(serving.active))
    assert set(serving.by_revision("ControllerRevision")) == set(hashes[1:])
    assert set(serving.by_revision("Deployment")) == set(hashes[1:])
    assert f"chat-{hashes[0]}" not in serving.of_kind("Service")


def test_an_edited_runtime_leaves_existing_revisions_alone_and_reaches_the_next(serving: FakeCluster) -> None:
    serving.runtime = LLMRuntimeSpec.model_validate(
        {**RUNTIME.model_dump(by_alias=True), "image": "engine:2"}
    )
    assert serving.plan(LATER).steps == ()
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    template = serving.by_revision("Deployment")[serving.target]["spec"]["template"]["spec"]
    assert template["containers"][0]["image"] == "engine:2"


def test_a_removed_runtime_stops_nothing_and_is_named_when_it_is_needed(serving: FakeCluster) -> None:
    serving.runtime = None
    assert serving.plan(LATER).steps == ()
    serving.edit(make_spec(replicas=2, runtime={"name": "vllm"}))
    serving.settle(LATER)
    assert serving.replicas() == {serving.active: 2}
    assert serving.condition("Ready")["status"] == "True"
    assert serving.condition("Stalled")["reason"] == "RuntimeNotFound"
    assert "vllm" in serving.condition("Stalled")["message"]


def test_a_runtime_that_cannot_be_rendered_is_not_recorded(serving: FakeCluster) -> None:
    serving.runtime = LLMRuntimeSpec.model_validate(
        {"image": "x", "args": [{"value": "--n=$(engine.maxModelLen)"}]}
    )
    before = set(serving.objects)
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    assert set(serving.objects) == before
    assert serving.condition("Degraded")["reason"] == "RuntimeInvalid"
    assert "add `when: engine.maxModelLen`" in serving.condition("Degraded")["message"]


@pytest.mark.parametrize(
    "path",
    [
        ("spec", "replicas"),
        ("spec", "template", "spec", "containers", 0, "image"),
        ("metadata", "labels", "app.kubernetes.io/name"),
    ],
)
def test_a_child_changed_by_hand_is_put_back(serving: FakeCluster, path: tuple[Any, ...]) -> None:
    deployment = next(iter(serving.of_kind("Deployment").values()))
    original = copy.deepcopy(deployment)
    place = deployment
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = 7 if path[-1] == "replicas" else "mine"
    serving.run_deployments()
    serving.settle(LATER)
    assert next(iter(serving.of_kind("Deployment").values())) == original


def test_an_endpoint_that_is_being_deleted_gets_nothing(serving: FakeCluster) -> None:
    serving.deleting = True
    serving.objects.clear()
    assert serving.plan(LATER).steps == ()


def test_a_lost_status_is_rebuilt_from_the_service(serving: FakeCluster) -> None:
    first = serving.active
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    serving.status = {}
    serving.settle(LATER)
    assert serving.active == first
    assert serving.replicas()[first] == 2


def test_a_deleted_record_of_the_active_revision_costs_no_pod(serving: FakeCluster) -> None:
    first = str(serving.active)
    serving.edit(make_spec(replicas=2, engine={"maxNumSeqs": 4}))
    serving.settle(LATER)
    del serving.objects["ControllerRevision", f"chat-{first}"]
    serving.settle(LATER)
    assert serving.replicas()[first] == 2
    serving.make_ready(serving.target)
    serving.settle(LATER)
    serving.reconcile(LATER + timedelta(seconds=60))
    assert not any(
        isinstance(s, Delete) and s.kind == "Service" and s.name == "chat" for s in serving.plan().steps
    )
    assert serving.active == serving.target
