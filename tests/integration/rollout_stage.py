"""A rollout on a real API server: what the user of a played endpoint does, and what a test reads of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

from llmendpoint_operator.kube.client import Credentials, KubeApi
from llmendpoint_operator.kube.resources import DEPLOYMENTS, ENDPOINTS
from tests.cluster import Cluster
from tests.integration.fake_wire import Servers
from tests.integration.installed import ROOT
from tests.integration.mortal_operator import Operator
from tests.integration.rollout_players import NAME, TICK_S, Json, Players
from tests.ports import free_port

RUNTIME = "rollout"

QUICK = {
    "observe": {"duration": 1, "maxDuration": 30, "minRequests": 20, "errorRate": {"max": 0.05}},
    "scaleDownDelay": 1,
    "abortScaleDownDelay": 1,
}
"""A rollout that decides within seconds."""


@dataclass
class Stage(Players):
    """One namespace with one endpoint `chat`, and who works on it."""

    operators: list[Operator] = field(default_factory=list)

    async def open(self, gateways: int = 2) -> None:
        """The namespace, and Ready gateways in it."""
        await self._create("v1", "namespaces", {"metadata": {"name": self.namespace}})
        for number in range(gateways):
            await self.add_gateway(f"gateway-{number}")

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
    async def stage(
        self, gateways: int = 2, kind: type[Stage] = Stage, **fields: Any
    ) -> AsyncIterator[Stage]:
        """A namespace in which everything is played."""
        found = kind(
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
