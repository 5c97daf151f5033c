"""docs/contribute/contracts.md: the idle pod goes when replicas go down, by the real ReplicaSet controller.

The test plays gateways that tell what is in flight.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from itertools import groupby
from typing import Any

import pytest

from llmendpoint_operator.core.scaling.scaledown import ACKNOWLEDGE_SECONDS, COST, COST_ANNOTATION
from llmendpoint_operator.kube.resources import EVENTS, PODS
from tests.integration.mortal_operator import Operator
from tests.integration.rollout_stage import Stage, Stages

pytestmark = pytest.mark.integration


async def pods(stage: Stage) -> dict[str, dict[str, Any]]:
    """Engine pods that are not ending, by name."""
    found = (await stage.api.list(PODS, stage.namespace, "llmendpoint.io/endpoint"))["items"]
    return {p["metadata"]["name"]: p for p in found if "deletionTimestamp" not in p["metadata"]}


async def wait_pods(stage: Stage, count: int) -> dict[str, dict[str, Any]]:
    """The pods, once there are so many."""
    async with asyncio.timeout(60):
        while len(found := await pods(stage)) != count:  # noqa: ASYNC110  # they are at the API server
            await asyncio.sleep(0.1)
    return found


async def four_of_which_one_is_idle(stage: Stage) -> tuple[str, set[str]]:
    """Four replicas serve; one, in the middle by age, has nothing to do: its name and those of the others."""
    await stage.edit(1, replicas=4)
    await stage.at_rest()
    await stage.until("four ready replicas", lambda: stage.status.get("readyReplicas") == 4)
    names = sorted(await wait_pods(stage, 4))
    idle = names[1]
    for number, gateway in enumerate(stage.gateways.values()):
        gateway.in_flight = {name: 0 if name == idle else 3 + number for name in names}
    return idle, {*names} - {idle}


async def test_of_four_the_idle_one_goes(stages: Stages) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        idle, busy = await four_of_which_one_is_idle(stage)
        await stage.edit(1, replicas=3)
        assert set(await wait_pods(stage, 3)) == busy
        await stage.until(
            "the list of draining pods to be empty", lambda: "draining" not in stage.status["traffic"]
        )
        listed = [found.get("draining", []) for found in stage.history]
        assert [names for names, _ in groupby(listed) if names] == [[idle]], (
            "it left the pick once, before it went"
        )
        events = (await stage.api.list(EVENTS, stage.namespace))["items"]
        [chosen] = [event["message"] for event in events if event["reason"] == "ReplicaChosen"]
        assert (
            chosen
            == f"replica {idle} is removed, with 0 requests in flight; the least busy of the others has 7"
        )


async def test_the_pod_that_goes_was_drained_and_annotated_before_the_deployment_shrank(
    stages: Stages,
) -> None:
    """The gateways hold back their acknowledgement: nothing goes until they give it."""
    async with stages.stage() as stage:
        await Operator(stage).start()
        idle, _ = await four_of_which_one_is_idle(stage)
        stage.deaf = set(stage.gateways)
        await stage.edit(1, replicas=3)
        await stage.until("it is drained", lambda: stage.status["traffic"].get("draining") == [idle])
        assert list((await stage.replicas()).values()) == [4]
        assert len(await wait_pods(stage, 4)) == 4
        stage.deaf = set()
        assert idle not in await wait_pods(stage, 3)


async def test_a_gateway_that_never_answers_holds_it_up_for_its_ten_seconds_only(stages: Stages) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        idle, busy = await four_of_which_one_is_idle(stage)
        stage.gateways["gateway-1"].hanging = True
        await stage.edit(1, replicas=3)
        await stage.until("it is drained", lambda: stage.status["traffic"].get("draining") == [idle])
        since = datetime.fromisoformat(stage.status["traffic"]["drainingSince"])
        assert set(await wait_pods(stage, 3)) == busy
        stage.gateways["gateway-1"].hanging = False
        assert (datetime.now(since.tzinfo) - since).total_seconds() >= ACKNOWLEDGE_SECONDS


async def test_scaling_up_again_in_between_gives_the_pod_back(stages: Stages) -> None:
    async with stages.stage() as stage:
        await Operator(stage).start()
        idle, busy = await four_of_which_one_is_idle(stage)
        stage.deaf = set(stage.gateways)
        await stage.edit(1, replicas=3)
        await stage.until("it is drained", lambda: stage.status["traffic"].get("draining") == [idle])
        await stage.edit(1, replicas=4)
        await stage.until("it is picked again", lambda: "draining" not in stage.status["traffic"])
        stage.deaf = set()
        found = await wait_pods(stage, 4)
        assert set(found) == {idle, *busy}
        assert all(COST_ANNOTATION not in pod["metadata"].get("annotations", {}) for pod in found.values())


async def test_without_gateways_replicas_go_down_at_once(stages: Stages) -> None:
    async with stages.stage(gateways=0) as stage:
        await Operator(stage).start()
        await stage.edit(1, replicas=3, rollout={"observe": {"duration": 0, "minRequests": 1}})
        await stage.until("three ready replicas", lambda: stage.status.get("readyReplicas") == 3)
        await stage.edit(1, replicas=1, rollout={"observe": {"duration": 0, "minRequests": 1}})
        await wait_pods(stage, 1)
        assert not any(found.get("draining") for found in stage.history)


async def test_gateways_that_never_become_ready_hold_it_up_for_a_while_only(
    stages: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is enough to wait for; what it waits for never comes."""
    monkeypatch.setattr("llmendpoint_operator.observe.gateways.LOST_S", 3.0)
    rollout = {"observe": {"duration": 0, "minRequests": 1}}
    async with stages.stage(gateways=0) as stage:
        await Operator(stage).start()
        await stage.edit(1, replicas=3, rollout=rollout)
        await stage.until("three ready replicas", lambda: stage.status.get("readyReplicas") == 3)
        await stage.add_gateway("gateway-0", ready=False)
        await stage.edit(1, replicas=1, rollout=rollout)
        await wait_pods(stage, 1)
        assert not any(found.get("draining") for found in stage.history)


@pytest.mark.parametrize("writes", range(1, 6))
async def test_an_operator_that_dies_after_any_write_is_followed_by_one_that_takes_the_same_pod(
    stages: Stages, writes: int
) -> None:
    """Status, annotation, Deployment, and twice the status after it: five writes and no more matter."""
    async with stages.stage() as stage:
        first = await Operator(stage).start()
        idle, busy = await four_of_which_one_is_idle(stage)
        await first.stop()
        mortal = await Operator(stage, die_after=writes).start()
        await stage.edit(1, replicas=3)
        await asyncio.wait_for(mortal.api.dead.wait(), 30)
        await mortal.stop()
        await Operator(stage).start()
        found = await wait_pods(stage, 3)
        assert set(found) == busy
        await stage.until(
            "the list of draining pods to be empty", lambda: "draining" not in stage.status["traffic"]
        )
        assert all(p["metadata"].get("annotations", {}).get(COST_ANNOTATION) != COST for p in found.values())
        assert idle not in found
