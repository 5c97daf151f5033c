"""docs/concepts/rollouts.md: a rollout without room waits for a node, or for nobody, and never gives up the only replica.

On a real API server.
"""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime

import pytest

from llmendpoint_operator.observe.rollout import prospects as pod_events
from tests.integration.mortal_operator import Operator
from tests.integration.played_pods import revision_of
from tests.integration.rollout_players import Behaviour, Json
from tests.integration.rollout_stage import Stage, Stages

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def asks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What autoscalers say is read every second."""
    monkeypatch.setattr(pod_events, "AGAIN_S", 1.0)


def pods_of_green(stage: Stage) -> list[Json]:
    return [pod for pod in stage._pods if revision_of(pod) == stage.rollout["green"]]


async def autoscaler_says(stage: Stage, reason: str, message: str) -> None:
    """The same Event about each pod of the new revision."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in pods_of_green(stage):
        name = pod["metadata"]["name"]
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": stage.namespace, "name": name}
        event = {
            "metadata": {"name": f"{name}.{uuid.uuid4().hex[:8]}"}, "involvedObject": about,
            "reason": reason, "message": message, "type": "Normal", "lastTimestamp": now,
            "source": {"component": "cluster-autoscaler"},
        }  # fmt: skip
        await stage._create("v1", f"namespaces/{stage.namespace}/events", event)


async def quota(stage: Stage, engines: int) -> None:
    """So many engine pods beside the gateways."""
    hard = {"pods": str(engines + len(stage.gateways))}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods"}, "spec": {"hard": hard}}
    path = f"/api/v1/namespaces/{stage.namespace}/resourcequotas/pods"
    query = {"fieldManager": "admin", "force": "true"}
    await stage.api._call("PATCH", path, query, body, "application/apply-patch+yaml")


async def test_the_only_replica_serves_on_until_a_node_comes_for_the_new_one(stages: Stages) -> None:
    behaviour = Behaviour(no_node="Unschedulable")
    async with stages.stage(behaviours={2: behaviour}) as stage:
        await Operator(stage).start()
        await stage.edit(1)
        first = await stage.at_rest()
        stage.ready_counts.clear()
        await stage.edit(2)
        await stage.until(
            "the status to say what may be written",
            lambda: "spec.rollout.capacity: Recreate" in stage.condition("Degraded").get("message", ""),
        )
        await autoscaler_says(stage, "NotTriggerScaleUp", "pod didn't trigger scale-up: max size reached")
        await asyncio.sleep(3)
        assert min(stage.ready_counts) == 1
        assert (await stage.replicas())[first] == 1
        assert stage.condition("Ready")["status"] == "True"
        behaviour.no_node = ""
        assert await stage.at_rest() != first
        assert stage.lost == stage.failed == 0
        assert min(stage.ready_counts) >= 1


async def test_an_autoscaler_that_brings_a_node_is_waited_for_and_one_that_does_not_is_not(
    stages: Stages,
) -> None:
    behaviour = Behaviour(no_node="Unschedulable")
    async with stages.stage(behaviours={2: behaviour}) as stage:
        await Operator(stage).start()
        await stage.edit(1, replicas=2)
        first = await stage.at_rest()
        await stage.edit(2, replicas=2)
        await stage.until(
            "the lack of a node", lambda: stage.condition("Degraded")["reason"] == "Unschedulable"
        )
        # The first pod without a node is enough for that; an autoscaler speaks of both.
        await stage.until("both pods", lambda: len(pods_of_green(stage)) == 2)
        await autoscaler_says(stage, "TriggeredScaleUp", "pod triggered scale-up: [{gpu 1->2 (max: 5)}]")
        await stage.until(
            "the node to be waited for", lambda: stage.condition("Progressing")["reason"] == "WaitingForNode"
        )
        await asyncio.sleep(3)
        assert stage.rollout["mode"] == "Surge"
        assert (await stage.replicas())[first] == 2
        await autoscaler_says(stage, "NotTriggerScaleUp", "pod didn't trigger scale-up: max size reached")
        await stage.until("the exchange in place", lambda: stage.rollout["mode"] == "InPlace")
        behaviour.no_node = ""
        assert await stage.at_rest() != first
        assert min(stage.ready_counts[-50:]) >= 1
        assert stage.lost == stage.failed == 0


async def test_a_first_revision_serves_with_the_pods_that_a_quota_allows(stages: Stages) -> None:
    async with stages.stage(behaviours={2: Behaviour(ready=False)}) as stage:
        await quota(stage, 1)
        await Operator(stage).start()
        await stage.edit(1, replicas=2)
        first = await stage.at_rest()
        ready = stage.condition("Ready")
        assert (ready["status"], ready["reason"]) == ("True", "SomeReplicasReady")
        assert stage.condition("Degraded")["reason"] == "PodsRefused"

        stage.ready_counts.clear()
        await stage.edit(2, replicas=2)
        await stage.until("the edit to be taken up", lambda: stage.rollout["state"] == "Provisioning")
        await asyncio.sleep(2)
        assert min(stage.ready_counts) == 1
        assert stage.active == first

        await stage.edit(1, replicas=2)
        await quota(stage, 4)
        await stage.until("the second replica", lambda: stage.status.get("readyReplicas") == 2, 120)
        assert stage.lost == stage.failed == 0
