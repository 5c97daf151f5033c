"""docs/concepts/models.md: with `scope: Node` each node has a record, and a Job deletes the model there when it was unused for long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.models.awaited import model_awaited
from llmendpoint_operator.core.models.files import model_files
from llmendpoint_operator.core.models.identity import Identity
from llmendpoint_operator.core.models.nodes import (
    FILES_ANNOTATION,
    NODE_ANNOTATION,
    files_of,
    is_record,
    keeps_on_nodes,
    missing_records,
    next_record_act,
)
from llmendpoint_operator.core.models.retention import Act, is_download, marking
from llmendpoint_operator.core.models.tasks import Stage, Task, read_task
from llmendpoint_operator.core.names import REVISION_LABEL
from llmendpoint_operator.core.pods.revision import Revision, revision_data
from llmendpoint_operator.kube.trimming import trim

from ..fake_cluster import NOW
from ..model_stage import REVISION, RUNTIME
from .test_models import CACHED, DOWNLOAD_JOB, NODE, inputs

WEEK = 7 * 86_400.0
HELD = Revision("a", 1, 1, inputs(NODE), RUNTIME, commit=REVISION)
FILES = model_files(HELD.inputs.model, REVISION)


def pod(node: str | None, revision: str = "a") -> dict[str, Any]:
    placed = {"nodeName": node} if node else {}
    return {"metadata": {"name": "x", "labels": {REVISION_LABEL: revision}}, "spec": placed}


def cached(pod: dict[str, Any]) -> dict[str, Any]:
    """As the operator's cache keeps it."""
    return trim({"kind": "Pod", **pod})


def records(*pods: dict[str, Any], known: set[tuple[str, str]] | None = None) -> list[dict[str, Any]]:
    return list(missing_records("team-a", HELD, map(cached, pods), known or set()))


def record(unused_for: float | None = None, removing: bool = False, ended: str = "") -> dict[str, Any]:
    [job] = records(pod("node-1"))
    annotations = job["metadata"]["annotations"]
    if unused_for is not None:
        annotations |= marking(Act.MARK, NOW - timedelta(seconds=unused_for))["metadata"]["annotations"]
    if removing:
        annotations |= marking(Act.RELEASE, NOW)["metadata"]["annotations"]
    conditions = [{"type": ended, "status": "True"}] if ended else []
    return {**job, "status": {"conditions": conditions}}


def test_each_node_of_a_revisions_pods_is_recorded_once_by_a_job_that_waits() -> None:
    made = records(pod("node-1"), pod("node-1"), pod("node-2"), pod(None), pod("node-3", revision="b"))
    assert [job["metadata"]["annotations"][NODE_ANNOTATION] for job in made] == ["node-1", "node-2"]
    assert len({job["metadata"]["name"] for job in made}) == 2
    assert all(job["spec"]["suspend"] for job in made)
    known = {("team-a", job["metadata"]["name"]) for job in made}
    assert records(pod("node-1"), pod("node-2"), known=known) == []


def test_the_job_deletes_that_model_on_that_node_and_nothing_else() -> None:
    [job] = records(pod("node-1"))
    spec = job["spec"]["template"]["spec"]
    [container] = spec["containers"]
    assert container["args"] == ["remove", "--root=/models/cache", f"--name={FILES.folder}"]
    assert "env" not in container
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]
    assert spec["volumes"][1]["persistentVolumeClaim"] == {"claimName": "cache"}
    assert job["spec"]["activeDeadlineSeconds"] > 0
    assert files_of(job) == job["metadata"]["annotations"][FILES_ANNOTATION] == FILES.job_name
    assert is_record(job)
    assert not is_download(job)


def test_only_revisions_whose_model_lies_on_nodes_are_looked_at() -> None:
    assert keeps_on_nodes({"data": revision_data(HELD)})
    shared = Revision("a", 1, 1, inputs(CACHED), RUNTIME, commit=REVISION)
    assert not keeps_on_nodes({"data": revision_data(shared)})
    assert list(missing_records("team-a", shared, [pod("node-1")], set())) == []
    assert not keeps_on_nodes({"data": {}})
    assert not is_record(DOWNLOAD_JOB)


@pytest.mark.parametrize(
    ("job", "used", "act"),
    [
        (record(), True, None),
        (record(), False, Act.MARK),
        (record(unused_for=1), True, Act.UNMARK),
        (record(unused_for=WEEK - 1), False, None),
        (record(unused_for=WEEK), False, Act.RELEASE),
        (record(unused_for=WEEK, removing=True), True, None),
        (record(unused_for=WEEK, removing=True, ended="Complete"), True, Act.DELETE),
        (record(unused_for=WEEK, removing=True, ended="Failed"), False, Act.DELETE),
    ],
)
def test_each_record_takes_one_step_at_a_time(job: dict[str, Any], used: bool, act: Act | None) -> None:
    assert next_record_act(job, used, NOW, WEEK) is act


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_what_is_used_never_leaves(unused_for: float, retention: float) -> None:
    assert next_record_act(record(unused_for), True, NOW, retention) is Act.UNMARK


def test_a_release_lets_the_job_run() -> None:
    assert marking(Act.RELEASE, NOW)["spec"] == {"suspend": False}


def test_a_revision_waits_while_its_model_is_marked_to_leave_a_node() -> None:
    assert read_task(record(unused_for=1), ()).stage is Stage.LEAVING
    identity = Identity(commit=REVISION)
    waits = model_awaited(HELD.inputs.model, identity, Task(Stage.LEAVING))
    assert waits is not None
    assert waits.reason == "ModelDownloading"
    assert "on claim cache had no user" in waits.message
    assert model_awaited(HELD.inputs.model, identity, Task(Stage.RUNNING)) is None
    assert model_awaited(HELD.inputs.model, identity, None) is None
