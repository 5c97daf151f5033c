"""docs/operate/troubleshooting.md: each cause of a pod that is not ready has its reason, and a message that says what to do.

The pods' statuses are as kubelet and scheduler 1.36 write them.
"""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.endpoint.causes import Cause, deadline_exceeded, find_cause, last_line

LIMITS = {"limits": {"nvidia.com/gpu": "2", "memory": "4Gi"}}


def pod(
    name: str = "chat-abc-1", *, container: dict[str, Any] | None = None, **status: Any
) -> dict[str, Any]:
    found = {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}], **status}
    if container is not None:
        found["containerStatuses"] = [{"name": "engine", "ready": False, "restartCount": 3, **container}]
    spec = {"containers": [{"name": "engine", "image": "registry.local/server:9", "resources": LIMITS}]}
    return {"metadata": {"name": name}, "spec": spec, "status": found}


def not_scheduled(message: str) -> dict[str, Any]:
    return pod(
        conditions=[
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        ]
    )


def waiting(reason: str, message: str = "", /, **last: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"state": {"waiting": {"reason": reason, "message": message}}}
    if last:
        container["lastState"] = {"terminated": last}
    return pod(container=container)


PULL_ERROR = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "registry.local/server:9": not found'
)
LOG_LINE = '{"level": "error", "event": "no model at /models/none: the folder has no config.json"}\n'


@pytest.mark.parametrize(
    ("live", "reason", "parts", "permanent"),
    [
        (
            not_scheduled("0/1 nodes are available: 1 Insufficient nvidia.com/gpu. preemption: 0/1 nodes are available."),
            "NoAcceleratorAvailable", ["no node has 2 free nvidia.com/gpu", "spec.resources.accelerator.count"], False,
        ),
        (not_scheduled("0/1 nodes are available: 1 Insufficient cpu."), "Unschedulable", ["1 Insufficient cpu"], False),
        (
            not_scheduled('0/1 nodes are available: persistentvolumeclaim "models" not found.'),
            "ModelClaimNotFound", ['"models" not found', "spec.model.source"], True,
        ),
        (waiting("ErrImagePull", PULL_ERROR), "ImagePullFailed", ["registry.local/server:9 cannot be pulled", "code = NotFound"], False),
        (
            waiting("ImagePullBackOff", f'Back-off pulling image "registry.local/server:9": ErrImagePull: {PULL_ERROR}'),
            "ImagePullFailed", ["code = NotFound"], False,
        ),
        (waiting("InvalidImageName", "couldn't parse image name"), "ImagePullFailed", ["couldn't parse"], True),
        (waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"), "ContainerNotCreated", ["runAsNonRoot"], False),
        (
            waiting("CrashLoopBackOff", "back-off 5m0s restarting", exitCode=3, reason="Error", message=LOG_LINE),
            "ModelNotFound", ["no model at /models/none", "spec.model.source"], True,
        ),
        (waiting("CrashLoopBackOff", "", exitCode=4, reason="Error", message="falcon is not served"), "ModelNotSupported", ["falcon is not served"], True),
        (waiting("CrashLoopBackOff", "", exitCode=2, reason="Error", message="unknown flag --x"), "BadEngineArgument", ["--x"], True),
        (
            waiting("CrashLoopBackOff", "", exitCode=1, reason="Error", message="Traceback\n  line\nRuntimeError: boom\n"),
            "EngineCrashed", ["exit code 1", "RuntimeError: boom"], False,
        ),
        (waiting("CrashLoopBackOff", "", exitCode=137, reason="OOMKilled"), "OutOfMemory", ["4Gi", "spec.resources.memory"], False),
        (waiting("CrashLoopBackOff", "", exitCode=137, reason="Error"), "EngineKilled", ["progressDeadlineSeconds"], False),
        (
            pod(phase="Running", container={"state": {"running": {}}, "lastState": {"terminated": {"exitCode": 1, "message": "boom"}}}),
            "EngineCrashed", ["boom"], False,
        ),
        (pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."), "PodFailed", ["Evicted", "low on resource"], False),
    ],
)  # fmt: skip
def test_a_pod_that_is_not_ready_names_its_cause(
    live: dict[str, Any], reason: str, parts: list[str], permanent: bool
) -> None:
    cause = find_cause(None, [live])
    assert isinstance(cause, Cause)
    assert (cause.reason, cause.permanent) == (reason, permanent)
    for part in parts:
        assert part in cause.message


@pytest.mark.parametrize(
    "live",
    [
        pod(phase="Pending"),
        waiting("ContainerCreating"),
        waiting("PodInitializing"),
        pod(phase="Running", container={"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}),
    ],
)
def test_a_pod_that_is_merely_starting_has_no_cause(live: dict[str, Any]) -> None:
    assert find_cause(None, [live]) is None


def test_a_ready_pod_that_crashed_once_has_no_cause() -> None:
    live = waiting("CrashLoopBackOff", "", exitCode=1, message="boom")
    live["status"]["conditions"] = [{"type": "Ready", "status": "True"}]
    assert find_cause(None, [live]) is None


def test_an_evicted_pod_is_a_cause_only_until_another_has_taken_its_place() -> None:
    gone = pod("a", phase="Failed", reason="Evicted", message="low on memory")
    loading, deployment = pod("b", phase="Running"), {"spec": {"replicas": 2}}
    assert find_cause(deployment, [gone, loading]) == find_cause(None, [gone])
    assert find_cause(deployment, [gone, loading, pod("c", phase="Running")]) is None


def test_the_message_does_not_change_while_the_kubelet_alternates() -> None:
    crash = {"exitCode": 1, "reason": "Error", "message": "boom"}
    between = pod(phase="Running", container={"state": {"terminated": crash}, "restartCount": 7})
    assert find_cause(None, [between]) == find_cause(
        None, [waiting("CrashLoopBackOff", "back-off 40s", **crash)]
    )
    pull = find_cause(None, [waiting("ErrImagePull", PULL_ERROR)])
    assert pull == find_cause(
        None, [waiting("ImagePullBackOff", f'Back-off pulling image "x": ErrImagePull: {PULL_ERROR}')]
    )


def test_pods_that_a_quota_refuses_are_named_from_the_deployment() -> None:
    message = 'pods "chat-abc-x" is forbidden: exceeded quota: team, requested: pods=1, used: pods=0, limited: pods=0'
    deployment = {
        "status": {
            "conditions": [
                {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
            ]
        }
    }
    cause = find_cause(deployment, [])
    assert cause is not None
    assert cause.reason == "PodsRefused"
    assert "exceeded quota: team" in cause.message


def test_a_deployment_past_its_deadline_is_noticed() -> None:
    condition = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    assert deadline_exceeded({"status": {"conditions": [condition]}})
    assert not deadline_exceeded(
        {
            "status": {
                "conditions": [{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}]
            }
        }
    )
    assert not deadline_exceeded(None)


def test_a_long_last_line_is_cut() -> None:
    assert len(last_line("x" * 5000)) == 300
    assert last_line("") == ""
    assert last_line('{"no": "event"}') == '{"no": "event"}'


def served(*, ready_at: str, started_at: str, **container: Any) -> dict[str, Any]:
    """A pod that was ready once, and is not any more."""
    found = pod(
        conditions=[
            {"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Ready", "status": "False", "lastTransitionTime": ready_at},
        ]
    )
    running = {"name": "engine", "state": {"running": {"startedAt": started_at}}, **container}
    found["status"]["containerStatuses"] = [running]
    return found


def test_an_engine_that_served_and_hangs_is_unresponsive_since_then() -> None:
    hung = served(ready_at="2026-01-01T01:00:00Z", started_at="2026-01-01T00:00:05Z", started=True)
    cause = find_cause(None, [hung])
    assert cause is not None
    assert cause.reason == "EngineUnresponsive"
    assert "has not answered since 2026-01-01T01:00:00Z" in cause.message
    again = served(
        ready_at="2026-01-01T01:00:00Z", started_at="2026-01-01T00:30:00Z", started=True,
        lastState={"terminated": {"exitCode": 137}},
    )  # fmt: skip
    cause = find_cause(None, [again])
    assert cause is not None
    assert cause.reason == "EngineUnresponsive", "what ended an earlier run is not what is wrong now"


@pytest.mark.parametrize(
    "loads",
    [
        served(ready_at="2026-01-01T00:00:00Z", started_at="2026-01-01T00:00:05Z"),
        served(ready_at="2026-01-01T01:00:00Z", started_at="2026-01-01T01:00:02Z"),
        served(ready_at="2026-01-01T01:00:00Z", started_at="2026-01-01T01:00:00Z", started=False),
    ],
    ids=["was never ready", "was started again", "was started again in that second"],
)
def test_an_engine_that_loads_is_not_unresponsive(loads: dict[str, Any]) -> None:
    assert find_cause(None, [loads]) is None


@pytest.mark.parametrize("code", [1, 2, 3])
def test_what_a_program_says_and_the_hint_are_divided_by_one_sign(code: int) -> None:
    live = waiting("CrashLoopBackOff", "", exitCode=code, reason="Error", message="It failed (--load-error).")
    found = find_cause(None, [live])
    assert found is not None
    assert "(--load-error)" in found.message
    assert "(--load-error)." not in found.message
