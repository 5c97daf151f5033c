"""docs/reference/cli.md: the tree shows each pod's phase, and why it is not ready."""

from __future__ import annotations

import pytest

from llmendpoint_cli.core.pods import view_pod

from .samples import BLUE, Json, hanging_pod, loading_pod, pod, ready_pod, unschedulable_pod, with_container

CRASHED = {
    "terminated": {
        "exitCode": 3,
        "reason": "Error",
        "message": '{"event": "no model at /models/x", "level": "error"}',
    }
}
KILLED = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}


@pytest.mark.parametrize(
    ("found", "phase", "why"),
    [
        (ready_pod("a", BLUE), "Ready", ""),
        (loading_pod("a", BLUE), "Loading", "loads the model and warms up"),
        (hanging_pod("a", BLUE), "Unresponsive", "since 2026-11-21T11:58:00Z; it was ready before"),
        (hanging_pod("a", BLUE, restarted=True), "Loading", "loads the model and warms up"),
        (unschedulable_pod("a", BLUE, "0/1 nodes"), "Pending", "Unschedulable: 0/1 nodes"),
        (pod("a", BLUE, phase="Pending"), "Starting", "its containers are being created"),
        ({**pod("a", BLUE, phase="Pending"), "spec": {}}, "Pending", "waits for the scheduler"),
        (pod("a", BLUE, phase="Failed", reason="Evicted", message="disk"), "Failed", "Evicted: disk"),
        (with_container({"waiting": {"reason": "ContainerCreating"}}, phase="Pending"), "Starting", "its containers are being created"),
        (with_container({"waiting": {"reason": "ErrImagePull", "message": "not found"}}, phase="Pending"), "Failed", "ErrImagePull: not found"),
        (with_container(CRASHED), "Failed", "engine ended with exit code 3: no model at /models/x"),
        (with_container(BACK_OFF, CRASHED, 4), "Failed", "engine ended with exit code 3: no model at /models/x"),
        (with_container(BACK_OFF, KILLED, 1), "Failed", "engine was killed at its memory limit"),
        (with_container({"running": {}}, CRASHED, 1), "Loading", "loads the model and warms up"),
    ],
)  # fmt: skip
def test_phase_and_reason(found: Json, phase: str, why: str) -> None:
    view = view_pod(found)
    assert (view.phase, view.why) == (phase, why)


def test_a_pod_on_its_way_out_is_stopping_even_while_it_is_ready() -> None:
    found = ready_pod("a", BLUE)
    found["metadata"]["deletionTimestamp"] = "2026-11-21T11:59:59Z"
    assert (view_pod(found).phase, view_pod(found).ready) == ("Stopping", False)


def test_restarts_of_all_containers_are_counted() -> None:
    found = with_container({"running": {}}, restarts=2)
    found["status"]["initContainerStatuses"] = [{"name": "probe", "restartCount": 1}]
    assert view_pod(found).restarts == 3


def test_long_messages_are_cut() -> None:
    assert len(view_pod(unschedulable_pod("a", BLUE, "x" * 500)).why) == 200
