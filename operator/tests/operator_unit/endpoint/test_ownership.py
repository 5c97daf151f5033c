"""docs/contribute/contracts.md: only the endpoint's own children are changed; anything else of their names stays as it is."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.ownership import (
    Foreign,
    Holder,
    foreign_cause,
    holder,
    holder_of,
    owner_in,
)
from llmendpoint_operator.core.endpoint.plan import Apply
from llmendpoint_operator.core.models.jobs import make_download_job
from llmendpoint_operator.core.names import MANAGER
from llmendpoint_operator.core.pods.builders import make_service_account
from llmendpoint_operator.core.pods.drift import first_difference
from llmendpoint_operator.core.pods.manifests import Owner
from llmendpoint_operator.gather import parse_endpoint

from ..fake_cluster import NOW, FakeCluster, make_spec
from ..model_stage import REVISION, RUNTIME
from ..models.test_models import CACHED, inputs

OWNER = Owner("team-a", "chat", "uid-1")


def child(*references: dict[str, Any]) -> dict[str, Any]:
    made = make_service_account(OWNER)
    made["metadata"]["ownerReferences"] = list(references)
    return made


def reference(uid: str, **other: Any) -> dict[str, Any]:
    found = make_service_account(OWNER)["metadata"]["ownerReferences"][0]
    return {**found, "uid": uid, **other}


@pytest.mark.parametrize(
    ("live", "whose"),
    [
        (child(reference("uid-1")), Holder.OURS),
        (child(reference("uid-1"), reference("x", kind="Backup", controller=False)), Holder.OURS),
        (child(reference("uid-0")), Holder.FORMER),
        (child(reference("uid-0", name="other")), Holder.STRANGER),
        (child(reference("uid-0", kind="Deployment")), Holder.STRANGER),
        (child(), Holder.STRANGER),
        (child(reference("uid-1", controller=False), reference("x", kind="App")), Holder.STRANGER),
    ],
    ids=["ours", "shared", "of the one before", "of another endpoint", "of another kind", "labels alone", "controlled by another"],
)  # fmt: skip
def test_whose_a_child_is(live: dict[str, Any], whose: Holder) -> None:
    assert owner_in(make_service_account(OWNER)) == OWNER
    assert holder(live, OWNER) is whose


def download(**metadata: Any) -> dict[str, Any]:
    job = make_download_job("team-a", REVISION, inputs(CACHED), RUNTIME)
    entries = [{"manager": MANAGER}, {"manager": "kube-controller-manager"}]
    return {**job, "metadata": {**job["metadata"], "managedFields": entries, **metadata}}


@pytest.mark.parametrize(
    ("job", "whose"),
    [
        (download(), Holder.OURS),
        (download(managedFields=[{"manager": "kubectl-create"}]), Holder.STRANGER),
        (download(labels={}), Holder.STRANGER),
        (download(ownerReferences=[reference("x", kind="CronJob")]), Holder.STRANGER),
    ],
    ids=["ours", "made by somebody else", "without labels", "owned by somebody"],
)
def test_whose_a_models_job_is(job: dict[str, Any], whose: Holder) -> None:
    assert owner_in(download()) is None
    assert holder(job, None) is whose


def foreign(kind: str, name: str = "chat", whose: Holder = Holder.STRANGER) -> dict[Any, Foreign]:
    return {(kind, name): Foreign(kind, name, whose)}


@pytest.mark.parametrize("kind", ["ServiceAccount", "NetworkPolicy"])
def test_while_what_guards_the_pods_is_not_ours_no_pod_is_made(kind: str) -> None:
    cluster = FakeCluster(foreign=foreign(kind))
    assert cluster.settle() > 0
    assert cluster.replicas() == {}
    assert not cluster.of_kind("ControllerRevision")
    assert cluster.condition("NotOwned")["status"] == "True"
    assert cluster.condition("Ready") == {
        **cluster.condition("Ready"),
        "status": "False",
        "reason": "NotOwned",
    }
    cluster.foreign = {}
    cluster.settle()
    assert sum(cluster.replicas().values()) == 1
    assert cluster.condition("NotOwned") == {}


def test_a_foreign_service_is_never_written_and_everything_else_is() -> None:
    cluster = FakeCluster(foreign=foreign("Service"))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    assert "chat" not in cluster.of_kind("Service")
    assert cluster.of_kind("PodDisruptionBudget")
    assert cluster.condition("Ready")["status"] == "True"
    assert cluster.condition("Degraded")["reason"] == "NotOwned"
    assert cluster.plan().steps == ()


def test_a_revision_whose_deployment_is_taken_is_not_recorded() -> None:
    cluster = FakeCluster()
    deployment = next(
        s.manifest
        for s in cluster.plan().steps
        if isinstance(s, Apply) and s.manifest["kind"] == "Deployment"
    )
    cluster.foreign = foreign("Deployment", deployment["metadata"]["name"])
    cluster.settle()
    assert not cluster.of_kind("ControllerRevision")


def test_what_the_endpoint_before_left_is_waited_for_and_then_named() -> None:
    former = foreign("Service", whose=Holder.FORMER)
    soon = foreign_cause(former, NOW, NOW + timedelta(seconds=5))
    late = foreign_cause(former, NOW, NOW + timedelta(seconds=61))
    assert soon is not None
    assert late is not None
    assert (soon.expected, late.permanent, late.reason) == (True, True, "NotOwned")
    mixed = {**former, **foreign("ServiceAccount")}
    now = foreign_cause(mixed, NOW, NOW)
    assert now is not None
    assert now.reason == "NotOwned"


def test_the_age_of_an_endpoint_is_read() -> None:
    metadata = {"namespace": "a", "name": "b", "uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}  # fmt: skip
    assert parse_endpoint({"metadata": metadata, "spec": {}}).created == NOW


def test_an_account_that_an_operator_before_took_over_is_the_endpoints_and_keeps_what_was_patched_in() -> (
    None
):
    wanted = make_service_account(OWNER)
    live = copy.deepcopy(wanted)
    live["metadata"]["annotations"] = {"eks.amazonaws.com/role-arn": "role"}
    live["imagePullSecrets"] = [{"name": "registry"}]
    assert holder_of(live, OWNER) is Holder.OURS
    assert first_difference(wanted, live) is None


def serving() -> FakeCluster:
    cluster = FakeCluster(make_spec(rollout={"observe": {"duration": 0}}))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    return cluster


def work(cluster: FakeCluster, begin: int, minutes: int) -> None:
    """A pass each minute, with pods that become ready."""
    for minute in range(begin, begin + minutes):
        cluster.reconcile(NOW + timedelta(minutes=minute))
        cluster.follow()
        for hash_ in list(cluster.pods):
            cluster.make_ready(hash_)


@pytest.mark.parametrize("kind", ["ServiceAccount", "NetworkPolicy"])
def test_an_edit_while_a_guard_is_foreign_waits_and_goes_on_when_that_is_gone(kind: str) -> None:
    cluster = serving()
    before = cluster.active
    cluster.foreign = foreign(kind)
    cluster.edit(make_spec(rollout={"observe": {"duration": 0}}, engine={"maxNumSeqs": 7}))
    work(cluster, 1, 60)
    assert "rejected" not in cluster.status
    assert list(cluster.of_kind("ControllerRevision")) == [f"chat-{before}"]
    assert cluster.condition("Degraded")["reason"] == "NotOwned"
    assert cluster.condition("Ready")["status"] == "True"
    cluster.foreign = {}
    work(cluster, 61, 10)
    assert "rejected" not in cluster.status
    assert cluster.active == cluster.target != before


def test_a_rollout_that_a_foreign_guard_interrupts_has_time_left_when_that_is_gone() -> None:
    cluster = serving()
    before = cluster.active
    cluster.edit(make_spec(rollout={"observe": {"duration": 0}}, engine={"maxNumSeqs": 7}))
    cluster.settle()
    cluster.foreign = foreign("ServiceAccount")
    for minute in range(1, 60):
        cluster.reconcile(NOW + timedelta(minutes=minute))
    assert "rejected" not in cluster.status
    cluster.foreign = {}
    cluster.reconcile(NOW + timedelta(minutes=60))
    assert "rejected" not in cluster.status
    work(cluster, 61, 10)
    assert cluster.active == cluster.target != before
