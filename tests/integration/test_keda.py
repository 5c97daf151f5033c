"""docs/concepts/autoscaling.md: KEDA 2.21 itself follows our scaler up, to zero and back, and keeps to the fallback in silence."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from llmendpoint_operator.kube.resources import AUTOSCALERS, PODS, SCALED_OBJECTS
from tests.cluster.binaries import KEDA_VERSION, KUBERNETES_VERSION, Keda, build_keda
from tests.integration.keda_process import read_contract, running
from tests.integration.operator_process import OperatorProcess
from tests.integration.played_load import next_pod, tell
from tests.integration.rollout_stage import Stage, Stages
from tests.integration.tunnel import Tunnel
from tests.ports import free_port

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]
"""KEDA may have to be built first."""

Json = dict[str, Any]

RULES = {
    "provider": "keda",
    "minReplicas": 0,
    "maxReplicas": 5,
    "pollingInterval": 1,
    "cooldownPeriod": 3,
    "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    "fallback": {"failureThreshold": 2, "replicas": 2},
}


@pytest.fixture(scope="module")
def programs() -> Keda:
    """KEDA's."""
    return build_keda()


class Diary:
    """What was seen, with the seconds since what is waited for was begun; printed for the documentation."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._began = time.monotonic()
        print(f"\nKEDA {KEDA_VERSION}, Kubernetes {KUBERNETES_VERSION.removeprefix('v')}")

    def begin(self) -> None:
        self._began = time.monotonic()

    async def count(self, what: str, count: int) -> None:
        """Until spec.replicas, which KEDA or its autoscaler writes, is so, and as many pods are ready."""

        def reached() -> bool:
            spec, status = self._stage.endpoint["spec"], self._stage.status
            return (spec.get("replicas"), status.get("readyReplicas", 0)) == (count, count)

        await self._stage.until(f"{what}: {count} replicas", reached, 90)
        self.seen(f"{what}: {count} replicas")

    async def condition(self, kind: str, reason: str) -> str:
        await self._stage.until(
            f"{kind} {reason}", lambda: self._stage.condition(kind).get("reason") == reason, 90
        )
        message = str(self._stage.condition(kind)["message"])
        self.seen(f"{kind} {self._stage.condition(kind)['status']} {reason}: {message}")
        return message

    def seen(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:5.1f} s  {text}")


@contextlib.asynccontextmanager
async def scaled_by_keda(stage: Stage, programs: Keda, folder: Path) -> AsyncIterator[Tunnel]:
    """KEDA and the operator run, with what the chart hands to each of them."""
    contract = await asyncio.to_thread(read_contract, stage.cluster, folder / "tls")
    port = free_port()
    operator = OperatorProcess(
        stage.cluster, "--watch-namespace", stage.namespace, "--gateway-namespace", stage.namespace,
        "--gateway-state-port", str(stage.gateway_port), "--keda-port", str(port), "--keda-tls", str(contract.tls),
        "--keda-address", contract.address, "--keda-authentication", contract.authentication,
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        async with Tunnel(port) as tunnel:
            keda = running(stage.cluster, programs, folder, tunnel.port)
            found = await asyncio.to_thread(stack.enter_context, keda)
            stage.cluster.apply(*contract.objects)
            await asyncio.to_thread(stack.enter_context, operator)
            try:
                yield tunnel
            except BaseException:
                print(found.tail())
                raise
            assert set(tunnel.asked) == {contract.address}, "by the name that the chart's certificate has"


async def rule(stage: Stage, **changes: Any) -> None:
    """The endpoint's autoscaling; None leaves a field out."""
    rules = {name: value for name, value in {**RULES, **changes}.items() if value is not None}
    await stage.edit(1, autoscaling=rules)


def hush(stage: Stage) -> None:
    for gateway in stage.gateways.values():
        gateway.hush()


def speak(stage: Stage, **load: int) -> None:
    for gateway in stage.gateways.values():
        gateway.mute = False
    tell(stage, **load)


async def of_keda(stage: Stage) -> Json:
    """KEDA's autoscaler."""
    [found] = (await stage.api.list(AUTOSCALERS, stage.namespace))["items"]
    return dict(found)


async def test_real_keda_scales_up_to_zero_and_back_on_a_held_request_and_keeps_to_the_fallback_in_silence(
    stages: Stages, programs: Keda, tmp_path: Path
) -> None:
    async with stages.stage() as stage, scaled_by_keda(stage, programs, tmp_path) as tunnel:
        diary = Diary(stage)
        await up(stage, diary)
        autoscaler = (await of_keda(stage))["metadata"]["uid"]
        await to_zero_and_back(stage, diary, tunnel)
        await silence(stage, diary)
        assert (await of_keda(stage))["metadata"]["uid"] == autoscaler, "nobody took it for ours"

        diary.begin()
        await stage.edit(1, autoscaling={"provider": "none", "maxReplicas": 5})
        await stage.until("no scaler", lambda: not stage.condition("Scaling"))
        await let_go(stage)
        diary.seen("provider none: KEDA has released its ScaledObject, and its autoscaler is gone too")
        assert stage.endpoint["spec"]["replicas"] == 1, "nobody touches the count"


async def up(stage: Stage, diary: Diary) -> None:
    tell(stage)
    await rule(stage, cooldownPeriod=60)
    await stage.at_rest()
    await diary.count("a new endpoint", 1)
    await diary.condition("Scaling", "ScaledByKeda")
    diary.begin()
    tell(stage, waiting=8)
    await diary.count("8 requests wait", 5)
    autoscaler = await of_keda(stage)
    assert autoscaler["metadata"]["ownerReferences"][0]["kind"] == "ScaledObject"
    assert autoscaler["status"]["desiredReplicas"] == 5, "it was this one that scaled"


async def to_zero_and_back(stage: Stage, diary: Diary, tunnel: Tunnel) -> None:
    diary.begin()
    tell(stage)
    await rule(stage)
    await diary.count("no requests", 0)
    await diary.condition("Ready", "ScaledToZero")

    await rule(stage, pollingInterval=3600)
    await polls_no_more(tunnel)
    version = (await stage.api.list(PODS, stage.namespace))["metadata"]["resourceVersion"]
    created = asyncio.create_task(next_pod(stage.api, stage.namespace, version))
    await asyncio.sleep(0.2)
    diary.begin()
    tell(stage, waiting=1)
    await created
    diary.seen("a request is held at zero, and the next poll is an hour away: its pod is created")
    await stage.until("a ready replica", lambda: stage.status.get("readyReplicas", 0) >= 1)
    tell(stage, running=1)
    await rule(stage)
    await diary.count("it runs", 1)


async def silence(stage: Stage, diary: Diary) -> None:
    diary.begin()
    hush(stage)
    await diary.count("no gateway reports anything", 2)
    [scaled] = (await stage.api.list(SCALED_OBJECTS, stage.namespace))["items"]
    assert {c["type"]: c["status"] for c in scaled["status"]["conditions"]}["Fallback"] == "True"
    diary.begin()
    speak(stage)
    await diary.count("they report no requests", 0)
    diary.begin()
    hush(stage)
    await diary.count("silence at zero", 2)

    diary.begin()
    speak(stage, running=1)
    await diary.count("a request", 1)
    await rule(stage, fallback=None)
    hush(stage)
    diary.begin()
    await diary.condition("Scaling", "KedaNotReady")
    await diary.count("silence without a fallback", 1)


async def polls_no_more(tunnel: Tunnel) -> None:
    """Until KEDA has said nothing for some of its former intervals; at zero its autoscaler asks nothing either."""
    async with asyncio.timeout(60):
        while time.monotonic() - tunnel.heard < 4:  # noqa: ASYNC110  # KEDA is what it waits for
            await asyncio.sleep(0.2)


async def let_go(stage: Stage) -> None:
    """Until KEDA's objects are gone."""
    kinds = (AUTOSCALERS, SCALED_OBJECTS)
    async with asyncio.timeout(60):
        while any([(await stage.api.list(kind, stage.namespace))["items"] for kind in kinds]):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
