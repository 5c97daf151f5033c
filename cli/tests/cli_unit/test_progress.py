"""docs/reference/cli.md: `rollout status` ends with a verdict on the spec as it stands, never with one on an earlier spec."""

from __future__ import annotations

import pytest

from llmendpoint_cli.core.progress import Verdict, progress_of

from .samples import BLUE, GREEN, READY, Json, condition, endpoint, rolling, serving

REJECTED = {
    "revision": GREEN,
    "reason": "ErrorRate",
    "message": "9.8 % of 51 requests failed, allowed are 2 %",
}
NO_GPU = condition("Degraded", True, "NoAcceleratorAvailable", "no node has 1 free nvidia.com/gpu")
NOT_KNOWN = "the operator asks the hub which content hf://a/b has"


@pytest.mark.parametrize(
    ("found", "verdict", "part"),
    [
        (endpoint(generation=4), Verdict.RUNNING, "has not seen"),
        (rolling("Warming"), Verdict.RUNNING, f"revision {GREEN}: 1 of 2 replicas ready; takes over from {BLUE}"),
        (rolling("Warming", autoscaling={"desiredReplicas": 5}), Verdict.RUNNING, "1 of 5 replicas ready"),
        (rolling("Observing", weights=(75, 25)), Verdict.RUNNING, "25 % of new requests"),
        (rolling("AwaitingPromotion"), Verdict.RUNNING, "kubectl llm rollout promote chat"),
        (rolling("RollingBack", "ttft p95 4.1 s, allowed are 2 s"), Verdict.RUNNING, "4.1 s"),
        (rolling("Provisioning", conditions=[NO_GPU]), Verdict.RUNNING, f"takes over from {BLUE}; NoAcceleratorAvailable: no node has 1 free nvidia.com/gpu"),
        (rolling("RolledBack", rejected=REJECTED), Verdict.FAILED, f"{GREEN} was rolled back: ErrorRate: 9.8 % of 51 requests failed, allowed are 2 %; revision {BLUE} serves"),
        (rolling("RolledBack", "aborted"), Verdict.FAILED, "rolled back: aborted"),
        (rolling("RolledBack", targetRevision=BLUE), Verdict.DONE, f"revision {BLUE} serves"),
        (rolling("Idle", weights=(0, 100), activeRevision=GREEN), Verdict.DONE, f"revision {GREEN} serves"),
        (serving(), Verdict.DONE, "AllReplicasReady"),
        (serving(activeRevision=None), Verdict.RUNNING, "0 of 2 replicas ready"),
        (endpoint(condition("Ready", False, "Starting"), targetRevision=GREEN), Verdict.RUNNING, "0 of 2"),
        (endpoint(condition("Ready", False, "ModelResolving", NOT_KNOWN), condition("Degraded", False, "AsExpected")), Verdict.RUNNING, f"the revision is not made yet; ModelResolving: {NOT_KNOWN}"),
        (endpoint(condition("Ready", False, "Starting"), condition("Degraded", True, "RuntimeNotFound", "no LLMRuntime x")), Verdict.RUNNING, "the revision is not made yet; RuntimeNotFound: no LLMRuntime x"),
        (endpoint(condition("Ready", False, "Unschedulable", "no free GPU"), condition("Degraded", True, "Unschedulable", "no free GPU"), targetRevision=GREEN), Verdict.RUNNING, f"revision {GREEN}: 0 of 2 replicas ready; Unschedulable: no free GPU"),
        (endpoint(READY, condition("Degraded", True, "ModelNotResolved", "no branch x"), activeRevision=BLUE), Verdict.RUNNING, "the revision is not made yet; ModelNotResolved: no branch x"),
        (endpoint(condition("Ready", False, "X"), condition("Stalled", True, "ModelNotFound", "no model at /x"), targetRevision=GREEN), Verdict.FAILED, "ModelNotFound: no model at /x"),
        (endpoint(READY, condition("Reconciling", True, "ScalingUp"), activeRevision=BLUE, targetRevision=BLUE), Verdict.RUNNING, "replicas ready"),
    ],
)  # fmt: skip
def test_verdict(found: Json, verdict: Verdict, part: str) -> None:
    progress = progress_of(found)
    assert progress.verdict is verdict
    assert part in progress.line


def test_an_old_status_decides_nothing_even_when_it_says_rejected() -> None:
    found = rolling("RolledBack", rejected=REJECTED)
    found["metadata"]["generation"] = 4
    assert progress_of(found).verdict is Verdict.RUNNING


def test_a_rejection_of_another_revision_is_over_once_the_spec_asks_for_something_else() -> None:
    assert progress_of(serving(rejected=REJECTED)).verdict is Verdict.DONE


@pytest.mark.parametrize("conditions", [(), (condition("Ready", False, "Starting", "no replica yet"),)])
def test_a_revision_that_is_not_made_has_no_name(conditions: tuple[Json, ...]) -> None:
    assert progress_of(endpoint(*conditions)).line == "the revision is not made yet"
