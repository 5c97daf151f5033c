"""A rollout on a real API server: a test plays the kubelet, the engines, the gateways and their callers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from llmendpoint_operator.errors import ApiError
from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.resources import DEPLOYMENTS, ENDPOINTS, PODS
from llmendpoint_operator.observe.gateways import GATEWAY_SELECTOR
from tests.cluster import Cluster
from tests.integration.fake_wire import FakeEngine, FakeGateway, Servers, free_port
from tests.integration.mortal_operator import Operator
from tests.integration.operator_process import ROOT
from tests.integration.played_pods import holds, is_ready, pending, revision_of, running

RUNTIME = "rollout"
NAME = "chat"
TICK_S = 0.1
REQUESTS_A_TICK = 5
"""Of each gateway: about 50 requests/s while the machine keeps up."""

Json = dict[str, Any]

QUICK = {
    "observe": {"duration": 1, "maxDuration": 30, "minRequests": 20, "errorRate": {"max": 0.05}},
    "scaleDownDelay": 1,
    "abortScaleDownDelay": 1,
}
"""A rollout that decides within seconds."""


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
class Stage:
    """One namespace with one endpoint `chat`. Revisions are told apart by `engine.maxNumSeqs`, which the pods' arguments
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
    operators: list[Operator] = field(default_factory=list)
    endpoint: Json = field(default_factory=dict)
    _pods: list[Json] = field(default_factory=list)
    _addresses: dict[str, str] = field(default_factory=dict)
    _followed: dict[str, Assignment] = field(default_factory=dict)

    async def open(self, gateways: int = 2) -> None:
        """The namespace, and Ready gateways in it."""
        await self._create("v1", "namespaces", {"metadata": {"name": self.namespace}})
        for number in range(gateways):
            await self.add_gateway(f"gateway-{number}")

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

    async def edit(self, seqs: int, **fields: Any) -> None:
        """The user's manifest, with a spec that makes revision `seqs`."""
        rollout = {**QUICK, **fields.pop("rollout", {})}
        spec = {
            "model": {"source": "embedded://demo"}, "runtime": {"name": RUNTIME}, "engine": {"maxNumSeqs": seqs},
            "rollout": rollout, **fields,
        }  # fmt: skip
        manifest = {
            "apiVersion": ENDPOINTS.api_version, "kind": ENDPOINTS.kind,
            "metadata": {"name": NAME, "namespace": self.namespace}, "spec": spec,
        }  # fmt: skip
        path = ENDPOINTS.path(self.namespace, NAME)
        query = {"fieldManager": "user", "force": "true"}
        self.endpoint = await self.api._call("PATCH", path, query, manifest, "application/apply-patch+yaml")

    async def ask(self, action: str, **fields: str) -> None:
        """A one-shot request by annotation."""
        request = json.dumps({"id": uuid.uuid4().hex, "action": action, **fields})
        patch = {"metadata": {"annotations": {"llmendpoint.io/request": request}}}
        path = ENDPOINTS.path(self.namespace, NAME)
        await self.api._call("PATCH", path, {}, patch, "application/merge-patch+json")

    async def close(self) -> None:
        """Everything goes."""
        for operator in self.operators:
            await operator.stop()
        await self.api._call("DELETE", f"/api/v1/namespaces/{self.namespace}")

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

    @property
    def active(self) -> str | None:
        """Who gets requests."""
        return self.status.get("activeRevision")

    def condition(self, kind: str) -> Json:
        """A condition; empty when it is not there."""
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    async def until(self, what: str, done: Callable[[], bool], seconds: float = 60) -> None:
        """Wait; the failure shows the status."""
        try:
            async with asyncio.timeout(seconds):
                while not done():  # the player fills what is waited for
                    assert not self.failures, self.failures
                    await asyncio.sleep(TICK_S / 2)
        except TimeoutError:
            raise AssertionError(
                f"not within {seconds} s: {what}; states {self.states}; status {json.dumps(self.status)}"
            ) from None

    async def at_rest(self, state: str = "Idle", seconds: float = 60) -> str:
        """The active revision, once the rollout has come to rest with this spec and nobody else has pods."""

        def resting() -> bool:
            current = self.status.get("observedGeneration") == self.endpoint["metadata"]["generation"]
            return current and self.rollout.get("state") == state and self.active is not None

        await self.until(f"the rollout to be {state}", lambda: bool(self.endpoint) and resting(), seconds)
        active = str(self.active)
        await self.until(
            "only the active revision to have pods",
            lambda: {revision for revision, _ in self._live_pods()} == {active},
            seconds,
        )
        return active

    async def replicas(self) -> dict[str, int]:
        """Wanted pods by revision."""
        found = await self.api.list(DEPLOYMENTS, self.namespace)
        return {
            item["metadata"]["labels"]["llmendpoint.io/revision"]: item["spec"]["replicas"]
            for item in found["items"]
        }

    async def final(self) -> Json:
        """What must be the same whoever was killed when: everything but times, epochs and hashes of their own."""
        conditions = {(c["type"], c["status"], c["reason"]) for c in self.status["conditions"]}
        rejected = self.status.get("rejected") or {}
        return {
            "active": self.active,
            "target": self.status.get("targetRevision"),
            "state": self.rollout["state"],
            "weights": self.status["traffic"]["weights"],
            "rejected": (rejected.get("revision"), rejected.get("reason")),
            "replicas": await self.replicas(),
            "conditions": conditions,
        }

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
            engine = FakeEngine(answer=lambda _: (200, self._behaviour(pod).answer))
            self._addresses[name] = await engine.serve(self.servers, self.engine_port)
            self.engines[name] = engine
        ready = behaviour.ready and not behaviour.crashed
        wanted = running(self._addresses[name], ready=ready, crashed=behaviour.crashed)
        if behaviour.no_node and not is_ready(pod):
            wanted = pending(behaviour.no_node)
        if not holds(pod.get("status", {}), wanted):
            with contextlib.suppress(ApiError):  # the pod may be gone by now
                pod["status"] = (await self._write_status(name, wanted))["status"]

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


@dataclass
class Stages:
    """What stages of one test share."""

    cluster: Cluster
    credentials: Credentials
    api: KubeApi
    servers: Servers
    gateway_port: int
    engine_port: int

    @contextlib.asynccontextmanager
    async def stage(self, gateways: int = 2, **fields: Any) -> AsyncIterator[Stage]:
        """A namespace in which everything is played."""
        found = Stage(
            self.cluster, self.credentials, self.api, self.servers, self.gateway_port, self.engine_port,
            **fields,
        )  # fmt: skip
        await found.open(gateways)
        try:
            async with found.playing():
                yield found
        finally:
            await found.close()


def install_runtime(cluster: Cluster, engine_port: int) -> None:
    """A runtime whose engines listen where the test's do."""
    runtime = yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/llmendpoint.yaml").read_text())
    runtime["metadata"]["name"] = RUNTIME
    runtime["spec"] |= {"image": "localhost/engine:1", "ports": {"http": engine_port}}
    cluster.apply(runtime)


@contextlib.asynccontextmanager
async def open_stages(cluster: Cluster) -> AsyncIterator[Stages]:
    """Connections and ports for a test's stages."""
    gateway_port, engine_port = free_port(), free_port()
    install_runtime(cluster, engine_port)
    credentials = await Credentials.load(str(cluster.kubeconfig))
    async with KubeApi(credentials) as api, Servers() as servers:
        yield Stages(cluster, credentials, api, servers, gateway_port, engine_port)
