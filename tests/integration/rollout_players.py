"""Who is played in a rollout on a real API server: the kubelet, the engines, the gateways and their callers."""

from __future__ import annotations

import asyncio
import contextlib
import re
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmendpoint_operator.errors import ApiError
from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.resources import ENDPOINTS, PODS
from llmendpoint_operator.observe.gateways import GATEWAY_SELECTOR
from tests.cluster import Cluster
from tests.integration.fake_wire import FakeEngine, FakeGateway, Servers
from tests.integration.played_pods import holds, is_ready, pending, revision_of, running

NAME = "chat"
TICK_S = 0.1
REQUESTS_A_TICK = 5
"""Of each gateway: about 50 requests/s while the machine keeps up."""

Json = dict[str, Any]


@dataclass
class Behaviour:
    """How the pods of a revision behave."""

    ready: bool = True
    answer: str = "The capital is Paris."
    ttft: float = 0.03
    error_every: int = 0
    """Each n-th request fails; 0: none."""
    crashed: bool = False
    no_node: str = ""
    """Why the scheduler has found no node; empty where it has."""


@dataclass
class Assignment:
    """What one gateway follows."""

    epoch: int
    weights: Mapping[str, int]
    credit: dict[str, float] = field(default_factory=dict)


@dataclass
class Players:
    """Of one namespace with one endpoint `chat`. Revisions are told apart by `engine.maxNumSeqs`, which the pods' arguments
    show. `history` holds every assignment that stood in the status, `lost` counts requests that a gateway sent to a
    revision without a ready pod."""

    cluster: Cluster
    credentials: Credentials
    api: KubeApi
    servers: Servers
    gateway_port: int
    engine_port: int
    namespace: str = field(default_factory=lambda: f"r-{uuid.uuid4().hex[:8]}")
    behaviours: dict[int, Behaviour] = field(default_factory=dict)
    gateways: dict[str, FakeGateway] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)
    """Gateways that follow no assignment any more."""
    engines: dict[str, FakeEngine] = field(default_factory=dict)
    history: list[Json] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    traffic: bool = True
    sent: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    ready_counts: list[int] = field(default_factory=list)
    """Ready pods of all revisions together, at each tick."""
    failed: int = 0
    failures: list[str] = field(default_factory=list)
    endpoint: Json = field(default_factory=dict)
    _pods: list[Json] = field(default_factory=list)
    _addresses: dict[str, str] = field(default_factory=dict)
    _followed: dict[str, Assignment] = field(default_factory=dict)

    async def add_gateway(self, name: str, *, ready: bool = True) -> FakeGateway:
        """One more gateway pod, which the test plays."""
        gateway = self.gateways[name] = FakeGateway()
        address = await gateway.serve(self.servers, self.gateway_port)
        await self.add_gateway_pod(name, address, ready=ready)
        return gateway

    async def add_gateway_pod(self, name: str, address: str, *, ready: bool = True) -> None:
        """One more gateway pod, whoever answers at its address."""
        labels = dict(pair.split("=") for pair in GATEWAY_SELECTOR.split(","))
        spec = {
            "containers": [{"name": "envoy", "image": "gateway:1"}],
            "automountServiceAccountToken": False,
        }
        pod = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        async with asyncio.timeout(30):
            while True:
                try:
                    await self._create("v1", f"namespaces/{self.namespace}/pods", pod)
                    break
                except ApiError:  # the namespace's ServiceAccount is not there yet
                    await asyncio.sleep(0.2)
        await self._write_status(name, running(address, ready=ready))

    @contextlib.asynccontextmanager
    async def playing(self) -> AsyncIterator[None]:
        """Kubelet, gateways and callers go on until the end."""
        player = asyncio.create_task(self._play())
        try:
            yield
        finally:
            player.cancel()
            await asyncio.gather(player, return_exceptions=True)

    @property
    def status(self) -> Json:
        """As last seen."""
        found: Json = self.endpoint.get("status") or {}
        return found

    @property
    def rollout(self) -> Json:
        """Its `rollout`."""
        found: Json = self.status.get("rollout") or {}
        return found

    async def _play(self) -> None:
        while True:
            with contextlib.suppress(ApiError):
                for item in (await self.api.list(ENDPOINTS, self.namespace))["items"]:
                    self._remember(item)
                self._pods = (await self.api.list(PODS, self.namespace, "llmendpoint.io/endpoint"))["items"]
                for pod in self._pods:
                    await self._kubelet(pod)
                self.ready_counts.append(sum(map(is_ready, self._pods)))
                self._follow()
                if self.traffic:
                    self._send()
            await asyncio.sleep(TICK_S)

    def _remember(self, endpoint: Json) -> None:
        """Unless an edit since it was listed has brought a newer one."""
        if _version(endpoint) < _version(self.endpoint):
            return
        self.endpoint = endpoint
        traffic = self.status.get("traffic")
        if traffic and traffic not in self.history[-1:]:
            self.history.append(traffic)
        state = self.rollout.get("state")
        if state and [state] != self.states[-1:]:
            self.states.append(state)

    async def _kubelet(self, pod: Json) -> None:
        name = pod["metadata"]["name"]
        if "deletionTimestamp" in pod["metadata"]:
            return
        behaviour = self._behaviour(pod)
        if name not in self.engines:
            engine, self._addresses[name] = await self.start_engine(pod)
            self.engines[name] = engine
        ready = behaviour.ready and not behaviour.crashed
        wanted = running(self._addresses[name], ready=ready, crashed=behaviour.crashed)
        if behaviour.no_node and not is_ready(pod):
            wanted = pending(behaviour.no_node)
        if not holds(pod.get("status", {}), wanted):
            with contextlib.suppress(ApiError):  # the pod may be gone by now
                pod["status"] = (await self._write_status(name, wanted))["status"]

    async def start_engine(self, pod: Json) -> tuple[FakeEngine, str]:
        """What answers in this pod, and its address."""
        engine = FakeEngine(answer=lambda _: (200, self._behaviour(pod).answer))
        return engine, await engine.serve(self.servers, self.engine_port)

    def _behaviour(self, pod: Json) -> Behaviour:
        arguments = " ".join(pod["spec"]["containers"][0].get("args", ()))
        found = re.search(r"--max-num-seqs=(\d+)", arguments)
        assert found, arguments
        return self.behaviours.setdefault(int(found[1]), Behaviour())

    def _follow(self) -> None:
        """A gateway applies an assignment when every revision in it has a routable replica; else the one before stays."""
        traffic = self.status.get("traffic")
        if not traffic:
            return
        weights = {item["revision"]: item["weight"] for item in traffic["weights"] if item["weight"]}
        ready = {revision for revision, is_ready in self._live_pods() if is_ready}
        for name, gateway in self.gateways.items():
            known = self._followed.get(name)
            if name in self.deaf or (known is not None and known.epoch == traffic["epoch"]):
                continue
            if known is None or set(weights) <= ready:
                self._followed[name] = Assignment(traffic["epoch"], weights)
                gateway.epochs[f"{self.namespace}/{NAME}"] = traffic["epoch"]

    def _send(self) -> None:
        for name, followed in self._followed.items():
            for revision, weight in followed.weights.items():
                due = followed.credit.get(revision, 0.0) + REQUESTS_A_TICK * weight / 100
                followed.credit[revision] = due % 1
                for _ in range(int(due)):
                    self._request(self.gateways[name], revision)

    def _request(self, gateway: FakeGateway, revision: str) -> None:
        ready = [p for p in self._pods if revision_of(p) == revision and is_ready(p)]
        if not ready:
            self.lost += 1
            return
        sent = self.sent[revision] = self.sent.get(revision, 0) + 1
        pod = ready[sent % len(ready)]
        behaviour = self._behaviour(pod)
        fails = behaviour.error_every > 0 and sent % behaviour.error_every == 0
        self.failed += fails
        self.engines[pod["metadata"]["name"]].observe(behaviour.ttft)
        gateway.count(f"{self.namespace}/{NAME}", revision, 1, int(fails))

    def _live_pods(self) -> set[tuple[str, bool]]:
        return {(revision_of(p), is_ready(p)) for p in self._pods if "deletionTimestamp" not in p["metadata"]}

    async def _create(self, version: str, path: str, body: Json) -> None:
        await self.api._call("POST", f"/api/{version}/{path}", {}, body)

    async def _write_status(self, pod: str, status: Json) -> Json:
        path = PODS.path(self.namespace, pod, "status")
        return await self.api._call("PATCH", path, {}, {"status": status}, "application/merge-patch+json")


def _version(item: Json) -> int:
    return int(item.get("metadata", {}).get("resourceVersion", 0))
