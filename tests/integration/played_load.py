"""What gateways tell of load and demand, as a test plays them, and the pod that follows."""

from __future__ import annotations

import time

from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.resources import PODS
from tests.integration.rollout_players import NAME
from tests.integration.rollout_stage import Stage


def tell(stage: Stage, waiting: int = 0, running: int = 0) -> None:
    """Every gateway tells the same load of each pod; the first one holds who waits."""
    load = {"running": running, "waiting": 0, "kv_usage": 0.1, "max_num_seqs": 8, "age": 0.1}
    for number, gateway in enumerate(stage.gateways.values()):
        replicas = {pod: {"in_flight": 0, "load": load} for pod in stage.engines}
        gateway.tell(f"{stage.namespace}/{NAME}", waiting if number == 0 else 0, **replicas)


async def next_pod(api: KubeApi, namespace: str, version: str) -> float:
    """When the next engine pod is created (monotonic)."""
    async for event in api.watch(PODS, namespace, "llmendpoint.io/endpoint", version, 30):
        if event["type"] == "ADDED":
            return time.monotonic()
    raise AssertionError("no pod was created within 30 s")
