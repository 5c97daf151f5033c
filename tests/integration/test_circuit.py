"""docs/concepts/gateway.md: an endpoint's breaker opens and closes as `status` says: real Envoy, picker, operator and API server.

The engine is a process. The gateway reads a stub of the API server, to which everything is copied that the real one holds:
the real one takes no slice with a loopback address.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.tests.engine_process import Backend
from gateway.tests.harness import Gateway, running_gateway
from llmendpoint_operator.kube.resources import EVENTS
from tests.integration.mortal_operator import Operator
from tests.integration.rollout_players import NAME
from tests.integration.rollout_stage import Stage, Stages

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def mirrored(stage: Stage, gateway: Gateway, backend: Backend) -> AsyncIterator[None]:
    """The gateway sees the endpoint as it stands, and its active revision's replica at this engine."""

    async def mirror() -> None:
        version = ""
        while True:
            found = copy.deepcopy(stage.endpoint)
            if found and found["metadata"]["resourceVersion"] != version:
                version = found["metadata"]["resourceVersion"]
                gateway.api.put("llmendpoints", found)
                if stage.active and stage.engines:
                    [pod] = stage.engines
                    gateway.replica(NAME, stage.active, backend, namespace=stage.namespace, pod=pod)
            await asyncio.sleep(0.05)

    task = asyncio.create_task(mirror())
    try:
        yield
    finally:
        task.cancel()


async def test_a_dead_engine_opens_the_breaker_as_the_status_says_and_its_return_ends_both(
    stages: Stages,
) -> None:
    with running_gateway() as gateway:
        stages.gateway_port = gateway.http_port
        engine = gateway.backend("engine")
        async with stages.stage(gateways=0) as stage, mirrored(stage, gateway, engine):
            await stage.add_gateway_pod("gateway", "127.0.0.1")
            await Operator(stage).start()
            await stage.edit(1, circuitBreaker={"openSeconds": 1})
            await stage.at_rest()
            await answered(gateway, stage, "ok")
            assert not stage.condition("CircuitOpen")

            engine.kill()
            await answered(gateway, stage, "circuit_open")
            await stage.until("the condition", lambda: bool(stage.condition("CircuitOpen")))
            condition = stage.condition("CircuitOpen")
            assert (condition["status"], condition["reason"]) == ("True", "RequestsFail")
            assert "get 503 and Retry-After from every gateway" in condition["message"]
            [opened] = await told(stage, "CircuitOpened")
            failed, among = figures(opened)
            assert 1 <= failed <= among

            engine.start()
            await answered(gateway, stage, "ok")
            await stage.until("the condition to go", lambda: not stage.condition("CircuitOpen"))
            assert await told(stage, "CircuitClosed") == ["every gateway sends requests to replicas again"]


async def answered(gateway: Gateway, stage: Stage, expected: str) -> None:
    """Ask until the answer is `ok`, or an error with this code."""
    body = {"model": f"{stage.namespace}/{NAME}", "messages": []}
    async with httpx.AsyncClient(base_url=gateway.url, timeout=30) as client, asyncio.timeout(30):
        while True:
            response = await client.post("/v1/chat/completions", json=body)
            if expected == ("ok" if response.status_code == 200 else response.json()["error"]["code"]):
                return
            await asyncio.sleep(0.05)


async def told(stage: Stage, reason: str) -> list[str]:
    """Messages of the Events of a reason, once there is one."""
    async with asyncio.timeout(10):
        while True:
            events = (await stage.api.list(EVENTS, stage.namespace))["items"]
            if found := [event["message"] for event in events if event["reason"] == reason]:
                return found
            await asyncio.sleep(0.1)


def figures(message: str) -> tuple[int, int]:
    """Of `… (gateway: 5 of 6 failed)`."""
    words = message.rpartition(": ")[2].split()
    return int(words[0]), int(words[2])
