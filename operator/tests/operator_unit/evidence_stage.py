"""Gateways and engines that a test plays, on real HTTP servers on loopback, for the evidence rim."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from llmendpoint_operator.api import LLMEndpointSpec, LLMRuntimeSpec
from llmendpoint_operator.core.endpoint.allowed import BY_DEFAULT, Allowed
from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Snapshot
from llmendpoint_operator.core.pods.revision import Revision
from llmendpoint_operator.core.rollout.evidence import Evidence, Outcome, Verification
from llmendpoint_operator.kube import resources
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.store import Informer
from llmendpoint_operator.metrics import Metrics
from llmendpoint_operator.observe import gateways
from llmendpoint_operator.observe.gateways import Gateways
from llmendpoint_operator.observe.rollout import evidence as collector
from llmendpoint_operator.observe.rollout import intervals
from llmendpoint_operator.observe.rollout import verification as prompts
from llmendpoint_operator.observe.rollout.evidence import Collector
from llmendpoint_operator.observe.rollout.prospects import PodEvents
from llmendpoint_operator.observe.wire import Wire
from tests.integration.fake_wire import FakeEngine, FakeGateway, Servers
from tests.ports import free_port

KEY = ("team-a", "chat")
RELATIVE = {"ttft": {"maxRatio": 1.5}}
PROMPT = {"name": "capital", "prompt": "Capital of France?", "expect": {"contains": ["Paris"]}}


@dataclass
class World:
    """A collector, the servers that it asks, and the endpoint that it is asked about."""

    serving: Servers
    wire: Wire
    cache: Informer
    gateways: Gateways
    collector: Collector
    gateway_port: int
    engine_port: int
    woken: list[tuple[str, str]]
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    gateway_pods: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)
    allowed: Allowed = BY_DEFAULT

    async def add_gateway(self, **fields: Any) -> FakeGateway:
        gateway = FakeGateway(**fields)
        address = await gateway.serve(self.serving, self.gateway_port)
        self.gateway_pods.append(ready_pod(f"gateway-{len(self.gateway_pods)}", address))
        self.list_gateways()
        return gateway

    def list_gateways(self) -> None:
        self.cache.store.replace(self.gateway_pods, "1")
        self.cache.synced.set()
        self.gateways.pods_changed()

    def unready(self, name: str, ending: bool) -> None:
        """A gateway fails its readiness probe, or is being deleted."""
        [pod] = [pod for pod in self.gateway_pods if pod["metadata"]["name"] == name]
        pod["metadata"]["resourceVersion"] = "2"
        if ending:
            pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        else:
            pod["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
        self.list_gateways()

    async def add_judge(self, **fields: Any) -> tuple[FakeEngine, str]:
        """An OpenAI API outside the cluster that the platform allows, and its base URL."""
        judge = FakeEngine(**fields)
        host = f"{await judge.serve(self.serving, self.engine_port)}:{self.engine_port}"
        self.allowed = replace(self.allowed, judge_hosts=(*self.allowed.judge_hosts, host))
        return judge, f"http://{host}/v1"

    async def add_engine(self, revision: str, **fields: Any) -> FakeEngine:
        engine = FakeEngine(**fields)
        pods = self.pods.setdefault(revision, [])
        pods.append(ready_pod(f"{revision}-{len(pods)}", await engine.serve(self.serving, self.engine_port)))
        return engine

    def snapshot(
        self, state: str, *, epoch: int = 1, gateway_url: str | None = None, **rollout: Any
    ) -> Snapshot:
        """The endpoint in a state of its rollout, from blue to green."""
        fields = {"rollout": {key: rollout.pop(key, {}) for key in ("verification", "observe")}}
        spec = LLMEndpointSpec.model_validate({"model": {"source": "embedded://demo"}, **fields})
        status = {
            "traffic": {"epoch": epoch},
            "activeRevision": "blue",
            "rollout": {"state": state, "blue": "blue", "green": "green", "stateSince": "t", **rollout},
        }
        endpoint = Endpoint(*KEY, "uid", 1, "1", deleting=False, spec=spec, status=status)
        runtime = LLMRuntimeSpec.model_validate({"image": "e:1", "ports": {"http": self.engine_port}})
        revisions = {hash_: Revision(hash_, 1, 1, spec, runtime) for hash_ in ("blue", "green")}
        pods = {revision: tuple(found) for revision, found in self.pods.items()}
        return Snapshot(
            endpoint, runtime, revisions=revisions, pods=pods, gateway_url=gateway_url, allowed=self.allowed
        )

    def look(self, snapshot: Snapshot) -> Evidence:
        """As a reconcile does: what is known now, with everything else being found out."""
        self.collector.update(snapshot)
        return self.collector.of((snapshot.endpoint.namespace, snapshot.endpoint.name))

    async def verified(self, **fields: Any) -> Verification:
        """The outcome of the verification once there is one."""
        snapshot = self.snapshot("Verifying", verification=fields)
        found: list[Verification] = []

        def done() -> bool:
            verification = self.look(snapshot).verification
            if verification is not None and verification.outcome is not Outcome.RUNNING:
                found.append(verification)
            return bool(found)

        await until(done)
        return found[0]


def ready_pod(name: str, address: str) -> dict[str, Any]:
    """A pod as the caches have it."""
    conditions = [{"type": "Ready", "status": "True"}]
    metadata = {"name": name, "namespace": "llm", "uid": name, "resourceVersion": "1"}
    return {"metadata": metadata, "status": {"podIP": address, "conditions": conditions}}


async def until(condition: Callable[[], bool]) -> None:
    """Once it holds."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  # the conditions are on what other tasks fill
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def staged(monkeypatch: pytest.MonkeyPatch, token: Path | None = None) -> AsyncIterator[World]:
    """A world in which everything that is asked again is asked again at once."""
    for module, name, seconds in (
        (prompts, "RETRY_S", 0.01), (prompts, "JUDGE_RETRY_S", 0.01), (collector, "SAMPLE_S", 0.03),
        (gateways, "POLL_S", 0.01), (gateways, "SLOW_POLL_S", 0.05), (intervals, "LOOK_S", 0.01),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, seconds)
    woken: list[tuple[str, str]] = []
    port = free_port()
    async with Wire(Metrics()) as wire, Servers() as serving:
        cache = Informer(cast(KubeApi, None), resources.PODS, lambda _: None)
        found = Gateways(wire, cache, port, woken.append, token)
        collecting = Collector(wire, found, woken.append, PodEvents(cast(KubeApi, None), woken.append))
        running = asyncio.create_task(collecting.run())
        world = World(serving, wire, cache, found, collecting, port, free_port(), woken, tasks=[running])
        yield world
        for task in world.tasks:
            task.cancel()
        await asyncio.gather(*world.tasks, return_exceptions=True)
