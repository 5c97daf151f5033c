"""docs/operate/troubleshooting.md: `Ready`, `Progressing`, `Degraded` and `Stalled` with their reasons, as a truth table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from llmendpoint_operator.api import RolloutState as State
from llmendpoint_operator.core.endpoint.causes import Cause
from llmendpoint_operator.core.endpoint.conditions import View, make_conditions
from llmendpoint_operator.core.endpoint.plan import make_plan
from llmendpoint_operator.core.endpoint.steps import WriteStatus

from ..fake_cluster import NOW, FakeCluster, make_spec

SLOW = Cause("EngineCrashed", "boom")
REJECTED = Cause("RevisionRejected", "error rate 10.0%", permanent=True)
FATAL = Cause("ModelNotFound", "no model", permanent=True)


@pytest.mark.parametrize(
    ("view", "expected"),
    [
        (View(2, None, "b", 0, 0, None), "Ready=False/Starting Progressing=True/NewRevision Degraded=False/AsExpected Reconciling=True/Progressing"),
        (View(2, "a", "a", 2, 2, None), "Ready=True/AllReplicasReady Progressing=False/Complete Degraded=False/AsExpected"),
        (View(2, "a", "a", 1, 1, None), "Ready=True/SomeReplicasReady Progressing=True/ScalingUp Degraded=False/AsExpected Reconciling=True/Progressing"),
        (View(2, "a", "a", 3, 3, None), "Ready=True/AllReplicasReady Progressing=False/Complete Degraded=False/AsExpected"),
        (View(0, "a", "a", 0, 0, None), "Ready=True/ScaledToZero Progressing=False/Complete Degraded=False/AsExpected"),
        (View(2, "a", "b", 2, 0, None), "Ready=True/AllReplicasReady Progressing=True/NewRevision Degraded=False/AsExpected Reconciling=True/Progressing"),
        (View(2, "a", "b", 2, 0, SLOW), "Ready=True/AllReplicasReady Progressing=True/NewRevision Degraded=True/EngineCrashed Reconciling=True/Progressing"),
        (View(2, "a", "b", 2, 0, SLOW, True), "Ready=True/AllReplicasReady Progressing=False/EngineCrashed Degraded=True/EngineCrashed Stalled=True/EngineCrashed"),
        (View(2, "a", "b", 2, 0, FATAL), "Ready=True/AllReplicasReady Progressing=False/ModelNotFound Degraded=True/ModelNotFound Stalled=True/ModelNotFound"),
        (View(2, None, "b", 0, 0, FATAL), "Ready=False/ModelNotFound Progressing=False/ModelNotFound Degraded=True/ModelNotFound Stalled=True/ModelNotFound"),
        (View(1, None, "b", 0, 0, SLOW), "Ready=False/EngineCrashed Progressing=True/NewRevision Degraded=True/EngineCrashed Reconciling=True/Progressing"),
        (
            View(1, None, "b", 0, 0, None, True),
            "Ready=False/Starting Progressing=False/ProgressDeadlineExceeded Degraded=True/ProgressDeadlineExceeded Stalled=True/ProgressDeadlineExceeded",
        ),
        (View(1, "a", "b", 1, 1, None, state=State.AWAITING_PROMOTION), "Ready=True/AllReplicasReady Progressing=True/AwaitingPromotion Degraded=False/AsExpected Reconciling=True/Progressing"),
        (View(1, "b", "b", 1, 1, None, state=State.OBSERVING), "Ready=True/AllReplicasReady Progressing=True/Observing Degraded=False/AsExpected Reconciling=True/Progressing"),
        (View(1, "b", "b", 1, 1, None, state=State.DRAINING), "Ready=True/AllReplicasReady Progressing=True/Draining Degraded=False/AsExpected Reconciling=True/Progressing"),
        (View(1, "a", "b", 1, 1, REJECTED, state=State.ROLLED_BACK), "Ready=True/AllReplicasReady Progressing=False/RevisionRejected Degraded=True/RevisionRejected Stalled=True/RevisionRejected"),
        (View(1, None, "b", 0, 0, REJECTED, state=State.ROLLED_BACK), "Ready=False/RevisionRejected Progressing=False/RevisionRejected Degraded=True/RevisionRejected Stalled=True/RevisionRejected"),
        (View(1, "a", "a", 1, 1, None, True), "Ready=True/AllReplicasReady Progressing=False/Complete Degraded=False/AsExpected"),
    ],
)  # fmt: skip
def test_conditions(view: View, expected: str) -> None:
    assert " ".join(f"{c.type}={c.status}/{c.reason}" for c in make_conditions(view)) == expected


def test_progress_names_no_revision_before_there_is_one() -> None:
    waiting = View(1, None, None, 0, 0, Cause("ModelNotResolved", "the hub does not answer"))
    said = {c.type: (c.reason, c.message) for c in make_conditions(waiting)}
    expected = ("NewRevision", "the new revision is not made yet: the hub does not answer")
    assert said["Progressing"] == expected
    assert said["Reconciling"][1] == expected[1]
    assert "None" not in str(make_conditions(replace(waiting, active="a", cause=None)))


@pytest.mark.parametrize(
    ("replicas", "ready", "expected"),
    [
        (2, 0, ("False", "SpecInvalid")),
        (2, 1, ("True", "SomeReplicasReady")),
        (2, 2, ("True", "AllReplicasReady")),
        (0, 0, ("True", "ScaledToZero")),
    ],
)
def test_a_spec_that_cannot_be_read_says_nothing_of_zero(
    replicas: int, ready: int, expected: tuple[str, str]
) -> None:
    cluster = FakeCluster(make_spec(replicas=2))
    cluster.settle()
    cluster.make_ready(cluster.target)
    cluster.settle()
    cluster.edit(make_spec(replicas=replicas))
    cluster.settle()
    for pod in cluster.pods.get(str(cluster.active), [])[ready:]:
        pod["status"]["conditions"][0]["status"] = "False"
    snapshot = cluster.snapshot()
    unread = replace(snapshot.endpoint, spec=None, spec_error="spec.model: Field required")
    [step] = make_plan(replace(snapshot, endpoint=unread), NOW).steps
    assert isinstance(step, WriteStatus)
    [found] = [c for c in step.status["conditions"] if c["type"] == "Ready"]
    assert (found["status"], found["reason"]) == expected
