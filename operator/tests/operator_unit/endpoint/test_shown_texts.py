"""docs/reference/cli.md: the page shows the operator's texts word for word: its samples are made from these."""

from __future__ import annotations

from typing import Any

import pytest

from cli.tests.cli_unit import samples
from llmendpoint_operator.core.endpoint.causes import unresponsive, unschedulable
from llmendpoint_operator.core.endpoint.served import Conflict, conflict_message
from llmendpoint_operator.core.rollout.evidence import Figures

from ..rollout_stage import Rollout


def test_of_a_revision_that_was_rolled_back() -> None:
    it = Rollout(observe={"errorRate": {"max": 0.02}, "duration": 60})
    green = it.switched()
    it.cluster.figures = {green: Figures(requests=51, errors=8)}
    assert it.work(20) == "RollingBack"
    it.cluster.follow()
    assert it.work(40) == "RolledBack"
    for condition in ("Stalled", "Degraded"):
        found = it.cluster.condition(condition)
        assert found["reason"] == "RevisionRejected"
        assert found["message"].replace(green, samples.GREEN) == samples.REJECTION
    assert it.rejected["message"] == samples.TOO_MANY_ERRORS


@pytest.mark.parametrize(
    ("find", "pod", "reason", "text"),
    [
        (unresponsive, samples.hanging_pod(f"chat-{samples.BLUE}-a", samples.BLUE), "EngineUnresponsive", samples.UNRESPONSIVE),
        (unschedulable, samples.unschedulable_pod(f"chat-{samples.GREEN}-a", samples.GREEN, samples.NO_GPU), "NoAcceleratorAvailable",
         samples.SCHEDULER_SAYS),
    ],
)  # fmt: skip
def test_of_a_pod_that_is_not_ready(find: Any, pod: dict[str, Any], reason: str, text: str) -> None:
    pod["spec"]["containers"] = [{"name": "engine", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]
    cause = find(pod)
    assert (cause.reason, cause.message) == (reason, text)


def test_of_a_name_that_another_endpoint_has() -> None:
    assert conflict_message(("team-a", "chat"), (Conflict("chat", "team-b/chat"),)) == samples.CONFLICT
