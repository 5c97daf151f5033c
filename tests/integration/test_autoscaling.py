"""docs/concepts/autoscaling.md: the builtin scaler follows the load, and keeps the count without figures or operator.

The API server is real; the test plays gateways that tell load and demand.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from datetime import datetime
from typing import Any

import pytest

from llmendpoint_operator.kube.resources import ENDPOINTS, EVENTS, PODS
from tests.integration.mortal_operator import Operator
from tests.integration.played_load import next_pod, tell
from tests.integration.rollout_players import NAME
from tests.integration.rollout_stage import Stage, Stages

pytestmark = pytest.mark.integration

FAST = {"maxReplicas": 5, "pollingInterval": 1}
"""A decision every second."""


async def serving(stage: Stage, **autoscaling: Any) -> None:
    """One replica serves, and there is nothing to do."""
    tell(stage)
    await stage.edit(1, autoscaling={**FAST, **autoscaling})
    await stage.at_rest()
    await stage.until("figures", lambda: bool(stage.condition("Scaling")))


async def wait_replicas(stage: Stage, count: int) -> None:
    """Until so many are wanted, as status and Deployment say."""
    await stage.until(f"{count} replicas", lambda: desired(stage) == count)
    async with asyncio.timeout(10):
        while sum((await stage.replicas()).values()) != count:  # noqa: ASYNC110  # they are at the API server
            await asyncio.sleep(0.05)


def desired(stage: Stage) -> int | None:
    found = stage.status.get("autoscaling", {}).get("desiredReplicas")
    return None if found is None else int(found)


async def told(stage: Stage, reason: str) -> list[str]:
    """Messages of Events of a reason."""
    events = (await stage.api.list(EVENTS, stage.namespace))["items"]
    return [event["message"] for event in events if event["reason"] == reason]


async def test_a_queue_of_100_reaches_the_maximum_and_load_that_is_gone_lowers_after_the_window(
    stages: Stages,
) -> None:
    async with stages.stage() as stage:
        operator = await Operator(stage).start()
        await serving(stage, behavior={"scaleDown": {"stabilizationWindowSeconds": 3}})
        tell(stage, waiting=100)
        await wait_replicas(stage, 5)
        scaled = stage.status["autoscaling"]
        assert (scaled["previousReplicas"], scaled["reason"]) == (1, "Signals"), "in one step"
        [said] = await told(stage, "ScaledUp")
        assert said.startswith("replicas 1 -> 5 (Signals): queueDepth 100 waiting / target 4")
        await stage.until("five ready replicas", lambda: stage.status.get("readyReplicas") == 5)
        assert stage.condition("Scaling")["reason"] == "AtMaximum"

        await asyncio.sleep(1)
        before = operator.api.writes
        await asyncio.sleep(3)
        assert operator.api.writes == before, "polls that change nothing write nothing"

        tell(stage)
        gone = datetime.now().astimezone()
        await wait_replicas(stage, 1)
        lowered = datetime.fromisoformat(stage.status["autoscaling"]["lastScaledAt"])
        assert (lowered - gone).total_seconds() >= 2, "the window, less the poll before"
        assert len(await told(stage, "ScaledDown")) == 1


async def test_figures_that_are_gone_change_nothing_and_then_the_fallback_holds(stages: Stages) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        await serving(stage, fallback={"failureThreshold": 3, "replicas": 3})
        for gateway in stage.gateways.values():
            gateway.hush()
        await wait_replicas(stage, 3)
        assert stage.status["autoscaling"]["reason"] == "Fallback"
        assert stage.condition("ScalingBlind")["status"] == "True"
        for gateway in stage.gateways.values():
            gateway.mute = False
        await stage.until("figures", lambda: stage.condition("ScalingBlind")["status"] == "False")


async def test_a_new_leader_goes_on_with_the_count_and_writes_nothing(stages: Stages) -> None:
    async with stages.stage() as stage:
        first = await Operator(stage).start()
        await serving(stage)
        tell(stage, waiting=8)
        await wait_replicas(stage, 3)
        await stage.until("three ready replicas", lambda: stage.status.get("readyReplicas") == 3)
        tell(stage, running=7)
        await stage.until("rest", lambda: stage.condition("Scaling")["reason"] == "FollowingSignals")
        await asyncio.sleep(1)
        await first.stop()
        second = await Operator(stage).start()
        await asyncio.sleep(3)
        assert second.api.writes == 0
        assert sum((await stage.replicas()).values()) == 3


async def test_kubectl_scale_sets_the_count_from_which_the_scaler_goes_on(stages: Stages) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        await serving(stage)
        path = ENDPOINTS.path(stage.namespace, NAME, "scale")
        await stage.api._call("PATCH", path, {}, {"spec": {"replicas": 4}}, "application/merge-patch+json")
        await wait_replicas(stage, 4)
        assert stage.status["autoscaling"]["reason"] == "SetByHand"


async def test_an_operator_that_dies_after_any_write_of_a_change_is_followed_by_one_that_finishes_it(
    stages: Stages,
) -> None:
    async with stages.stage() as stage:
        first = await Operator(stage).start()
        await serving(stage)
        await first.stop()
        mortal = await Operator(stage, die_after=1).start()
        tell(stage, waiting=8)
        await asyncio.wait_for(mortal.api.dead.wait(), 30)
        await mortal.stop()
        tell(stage, running=7)
        await Operator(stage).start()
        await wait_replicas(stage, 3)
        assert len(stage.history) == 1, "who gets requests has not changed"


async def from_zero(stage: Stage) -> float:
    """Seconds from the request that a gateway holds to the pod; then nobody calls and it is at zero again."""
    await wait_replicas(stage, 0)
    async with asyncio.timeout(30):
        while True:
            found = await stage.api.list(PODS, stage.namespace, "llmendpoint.io/endpoint")
            if not found["items"]:
                break
            await asyncio.sleep(0.05)
    version = found["metadata"]["resourceVersion"]
    created = asyncio.create_task(next_pod(stage.api, stage.namespace, version))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    tell(stage, waiting=1)
    seconds = await created - began
    await stage.until("a ready replica", lambda: stage.status.get("readyReplicas") == 1)
    tell(stage)
    return seconds


async def test_a_request_held_at_zero_makes_a_pod_at_once_and_one_that_loads_is_not_taken(
    stages: Stages,
) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        await serving(stage, minReplicas=0, cooldownPeriod=1)
        taken = [await from_zero(stage) for _ in range(5)]
        print(
            f"from a held request to its pod: median {statistics.median(taken) * 1000:.0f} ms, "
            f"largest of {len(taken)} {max(taken) * 1000:.0f} ms"
        )
        await wait_replicas(stage, 0)
        await stage.until("zero", lambda: stage.condition("Ready").get("reason") == "ScaledToZero")
        assert stage.condition("Ready")["status"] == "True"
        assert not stage.condition("Reconciling")

        stage.behaviours[1].ready = False
        tell(stage, waiting=1)
        await wait_replicas(stage, 1)
        tell(stage)
        await asyncio.sleep(4)
        assert desired(stage) == 1, "it loads"
        stage.behaviours[1].ready = True
        await wait_replicas(stage, 0)
