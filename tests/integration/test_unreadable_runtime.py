"""docs/concepts/rollouts.md: an LLMRuntime that a later version wrote freezes its own endpoints, and no others."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from tests.cluster import Cluster
from tests.integration.mortal_operator import Operator
from tests.integration.rollout_stage import RUNTIME, Stages

pytestmark = pytest.mark.integration

CRD = "llmruntimes.llmendpoint.io"


@pytest.fixture
def newer_crd(prepared: Cluster) -> Iterator[None]:
    """The CRD of a later version, which knows one more kind of readiness."""
    live = prepared.get("crd", CRD)
    meta = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {"name": CRD}}
    newer = copy.deepcopy(live["spec"])
    schema = newer["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["readiness"]["enum"].append("Telepathy")
    prepared.apply({**meta, "spec": newer})
    yield
    prepared.apply({**meta, "spec": live["spec"]})


@pytest.mark.usefixtures("newer_crd")
async def test_an_unreadable_runtime_freezes_its_endpoints_and_nothing_else(stages: Stages) -> None:
    runtime = stages.cluster.get("llmruntime", RUNTIME)
    kept = {"apiVersion": runtime["apiVersion"], "kind": runtime["kind"], "metadata": {"name": "newer"}}
    stages.cluster.apply({**kept, "spec": runtime["spec"]})
    newer = {"runtime": {"name": "newer"}}
    async with stages.stage() as stage, stages.stage() as other:
        await Operator(stage).start()
        await Operator(other).start()
        await stage.edit(1, **newer)
        first = await stage.at_rest()
        stages.cluster.apply({**kept, "spec": {**runtime["spec"], "readiness": "Telepathy"}})
        await stage.until(
            "the condition", lambda: stage.condition("Degraded").get("reason") == "RuntimeUnreadable"
        )
        assert "spec.readiness" in stage.condition("Degraded")["message"]
        assert stage.condition("Ready")["status"] == "True"

        await stage.edit(1, replicas=2, **newer)
        await stage.until("the second replica", lambda: stage.status.get("readyReplicas") == 2)

        await stage.edit(2, replicas=2, **newer)
        await stage.until(
            "the edit to be held", lambda: stage.condition("Stalled").get("reason") == "RuntimeUnreadable"
        )
        assert stage.active == first
        await other.edit(1)
        await other.at_rest()

        stages.cluster.apply({**kept, "spec": runtime["spec"]})
        await stage.until("the edit to be followed", lambda: stage.active not in (None, first))
        await stage.at_rest()
        assert stage.lost == stage.failed == 0
