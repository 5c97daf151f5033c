"""The real gateway on this machine: the two commands, a stub of the API server, and stub engines.

Only the API server and the engines are stood in for, at the wire. Everything that is started is ended by its own
process object.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.tests.api_stub import ApiStub
from gateway.tests.bounds import wait_for
from gateway.tests.engine_process import Backend
from gateway.tests.gateway_process import GatewayProcess


class Gateway(GatewayProcess):
    """With what the API server says of endpoints and replicas; without a kubeconfig that is a stub's."""

    def __init__(self, folder: Path, kubeconfig: Path | None = None, **bounds: Any) -> None:
        self.api = ApiStub()
        self.backends: list[Backend] = []
        self.endpoints = 0
        super().__init__(folder, kubeconfig or self.api.kubeconfig(folder), **bounds)

    def settled(self) -> None:
        """Envoy has acknowledged all that the picker knows, and the picker all that the stub holds."""

        def done() -> bool:
            state = self.state()
            listed = {
                f"{body['metadata']['namespace']}/{name}"
                for name, body in self.api.objects["llmendpoints"].items()
            }
            return (
                state["synced"]
                and state["connected"]
                and state["generation"] == state["acknowledged"]
                and set(state["endpoints"]) == listed
            )

        wait_for(done, "the acknowledged generation is the present one")

    def backend(self, name: str, *options: str) -> Backend:
        backend = Backend(name, options=options).start()
        self.backends.append(backend)
        return backend

    def endpoint(
        self, *backends: Backend, name: str = "", revision: str = "r1", namespace: str = "team", **more: Any
    ) -> str:
        """An endpoint at a revision with these replicas, routed; returns its name."""
        self.endpoints += 1
        name = name or f"chat{self.endpoints}"
        for backend in backends:
            self.replica(name, revision, backend, namespace=namespace)
        self.activate(name, revision, namespace=namespace, **more)
        self.routed(name, revision, *backends, namespace=namespace)
        return name

    def activate(
        self,
        name: str,
        revision: str | None,
        names: tuple[str, ...] = (),
        created: str = "",
        replicas: int = 0,
        namespace: str = "team",
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """`replicas` is what the spec asks for: with 0, nobody waits for one. `spec`: further fields of it."""
        body: dict[str, Any] = {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "labels": labels or {},
                "creationTimestamp": created or "2026-01-01T00:00:00Z",
            },
            "spec": {
                "model": {"source": "embedded://demo", **({"servedNames": names} if names else {})},
                "replicas": replicas,
                **spec,
            },
            "status": {"activeRevision": revision},
        }
        self.api.put("llmendpoints", body)

    def declare(self, name: str, *paths: str) -> None:
        """Write status.paths to an endpoint that is there."""
        body = json.loads(json.dumps(self.api.objects["llmendpoints"][name]))
        body["status"]["paths"] = list(paths)
        self.api.put("llmendpoints", body)

    def traffic(
        self, name: str, epoch: int, draining: tuple[str, ...] = (), blue: str = "", **weights: int
    ) -> None:
        """Write status.traffic to an endpoint that is there; the active revision follows the most weight.

        `blue`: what a rollout goes back to.
        """
        body = json.loads(json.dumps(self.api.objects["llmendpoints"][name]))
        shares = [{"revision": revision, "weight": weight} for revision, weight in weights.items()]
        traffic = {"epoch": epoch, "weights": shares, "draining": list(draining)}
        body["status"] = {"activeRevision": max(weights, key=lambda r: weights[r]), "traffic": traffic}
        if blue:
            body["status"]["rollout"] = {"state": "Observing", "blue": blue}
        self.api.put("llmendpoints", body)

    def follows(self, name: str, epoch: int) -> None:
        """Wait until /state reports this epoch for the endpoint."""
        wait_for(lambda: self.known(name)["epoch"] == epoch, f"{name} follows epoch {epoch}")

    def known(self, name: str) -> dict[str, Any]:
        """The endpoint in /state."""
        endpoint: dict[str, Any] = self.state()["endpoints"][f"team/{name}"]
        return endpoint

    def revisions(self, name: str) -> dict[str, dict[str, Any]]:
        """The counters of /revisions by revision."""
        counters: dict[str, dict[str, Any]] = self.get(f"/revisions/team/{name}")["revisions"]
        return counters

    def by_replica(self, name: str, revision: str = "r1") -> dict[str, tuple[int, int]]:
        """Pod -> (requests, errors), from /revisions."""
        replicas = self.revisions(name)[revision]["replicas"]
        return {pod: (counted["requests"], counted["errors"]) for pod, counted in replicas.items()}

    def replica(
        self,
        name: str,
        revision: str,
        backend: Backend,
        ready: bool = True,
        terminating: bool = False,
        namespace: str = "team",
        pod: str = "",
    ) -> None:
        body = {
            "metadata": {
                "namespace": namespace,
                "name": f"{name}-{revision}-{backend.port}",
                "labels": {"llmendpoint.io/endpoint": name, "llmendpoint.io/revision": revision},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": backend.port}],
            "endpoints": [
                {
                    "addresses": ["127.0.0.1"],
                    "conditions": {"ready": ready, "terminating": terminating},
                    "targetRef": {"kind": "Pod", "name": pod or f"{backend.name}-{backend.port}"},
                }
            ],
        }
        self.api.put("endpointslices", body)

    def remove_replica(self, name: str, revision: str, backend: Backend, silently: bool = False) -> None:
        self.api.delete("endpointslices", f"{name}-{revision}-{backend.port}", silently)

    def routed(self, name: str, revision: str | None, *backends: Backend, namespace: str = "team") -> None:
        """Wait until exactly these replicas of this revision are ready in /state, and acknowledged."""

        def done() -> bool:
            state = self.state()
            endpoint = state["endpoints"].get(f"{namespace}/{name}")
            if endpoint is None or endpoint["activeRevision"] != revision:
                return False
            ready = {r["address"] for r in endpoint["replicas"] if r["ready"] and r["revision"] == revision}
            return state["generation"] == state["acknowledged"] and ready == {b.address for b in backends}

        wait_for(done, f"{name} is routed to {[b.address for b in backends]}")

    def in_flight(self, name: str) -> dict[str, int]:
        replicas = self.known(name)["replicas"]
        return {r["address"]: r["in_flight"] for r in replicas if r["in_flight"]}

    def close(self) -> None:
        for backend in self.backends:
            backend.kill()
        super().close()
        self.api.down()


@contextlib.contextmanager
def running_gateway(kubeconfig: Path | None = None, **bounds: Any) -> Iterator[Gateway]:
    # A short path: a Unix socket's may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="gw") as folder:
        gateway = Gateway(Path(folder), kubeconfig, **bounds)
        try:
            yield gateway.ready()
        except BaseException:
            sys.stderr.write(f"picker:\n{gateway.log('picker')[-4000:]}\n")
            if (gateway.folder / "envoy.log").exists():
                sys.stderr.write(f"envoy:\n{gateway.log('envoy')[-4000:]}\n")
            raise
        finally:
            gateway.close()
