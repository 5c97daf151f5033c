"""Run the operator against a cluster, and play its kubelet: pods are written ready by the test."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import Cluster

ROOT = Path(__file__).parents[2]
RUNTIME = "integration"
"""A runtime of our own, so that the chart's tests may install theirs in the same cluster."""

READY = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
}


def install(cluster: Cluster) -> None:
    """The definitions, and a runtime like the bundled one."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        cluster.apply(yaml.safe_load(path.read_text()))
    cluster.kubectl(
        "wait",
        "--for=condition=Established",
        "crd",
        "llmendpoints.llmendpoint.io",
        "llmruntimes.llmendpoint.io",
    )
    runtime = yaml.safe_load((ROOT / "charts/llmendpoint/runtimes/llmendpoint.yaml").read_text())
    runtime["metadata"]["name"] = RUNTIME
    runtime["spec"]["image"] = "localhost/engine:1"
    cluster.apply(runtime)


def endpoint(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """A manifest with the demo model; fields of the spec may be given."""
    whole = {
        "model": {"source": "embedded://demo"},
        "runtime": {"name": RUNTIME},
        "rollout": {"scaleDownDelay": 0},
        **spec,
    }
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMEndpoint",
        "metadata": metadata,
        "spec": whole,
    }


class OperatorProcess:
    """One `llmendpoint-operator`. As context manager it starts, is ready, and gets SIGTERM at the end."""

    def __init__(self, cluster: Cluster, *arguments: str) -> None:
        self._cluster = cluster
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        handle, name = tempfile.mkstemp(prefix="operator-", suffix=".log")
        os.close(handle)
        self.log = Path(name)

    def start(self, expected: str = "ready") -> OperatorProcess:
        """Start it and wait until /readyz says so: `ready` leads with its caches filled, `standby` waits."""
        command = [
            sys.executable, "-m", "llmendpoint_operator", "--kubeconfig", str(self._cluster.kubeconfig),
            "--http-port", str(self.port), "--lease-seconds", "3", *self._arguments,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        self._cluster.wait_for(
            f"the operator to be {expected}", lambda: self.page("/readyz") == {"status": expected}, 60
        )
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it and return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)

    def send(self, number: signal.Signals) -> None:
        """A signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        assert self._process is not None
        return self._process.wait(60)

    def __enter__(self) -> OperatorProcess:
        return self if self._process is not None else self.start()

    def __exit__(self, *_: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
        print(f"--- {self.log}\n{self.log.read_text()[-5000:]}")
        self.log.unlink()

    @property
    def pid(self) -> int:
        """Of the process, which must be running."""
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended:\n{self.log.read_text()[-3000:]}"
        return self._process.pid

    def page(self, path: str) -> Any:
        """A page of its HTTP port: JSON where it is, text otherwise; None while it does not answer."""
        assert self._process is not None
        assert self._process.poll() is None, f"the operator ended:\n{self.log.read_text()[-3000:]}"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                text = response.read().decode()
        except urllib.error.HTTPError as error:
            text = error.read().decode()
        except OSError:
            return None
        return text if path == "/metrics" else json.loads(text)

    def writes(self) -> float:
        """Writes so far, by its own count."""
        return sum(
            float(v)
            for v in re.findall(
                r"^llmendpoint_operator_writes_total\{.*\} (\S+)$", self.page("/metrics"), re.M
            )
        )

    def reconciles(self) -> float:
        """Reconciles so far."""
        return sum(
            float(v)
            for v in re.findall(
                r"^llmendpoint_operator_reconciles_total\{.*\} (\S+)$", self.page("/metrics"), re.M
            )
        )

    def settle(self, limit_s: int = 30) -> None:
        """Wait until it has done nothing for a second."""
        seen = -1.0
        for _ in range(limit_s):
            now = self.reconciles()
            if now == seen:
                return
            seen = now
            time.sleep(1)
        raise AssertionError("the operator goes on reconciling though nothing changes")


class Namespace:
    """A namespace with endpoints, and what a kubelet would do in it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.name = f"t-{uuid.uuid4().hex[:8]}"
        cluster.kubectl("create", "namespace", self.name)

    def apply(self, name: str = "chat", **spec: Any) -> None:
        """kubectl apply, as a user does."""
        manifest = json.dumps(endpoint(name, self.name, **spec))
        self.cluster.kubectl("apply", "-f", "-", stdin=manifest)

    def get(self, *args: str) -> Any:
        """kubectl get -o json."""
        return self.cluster.get(*args, "-n", self.name)

    def items(self, kind: str) -> list[dict[str, Any]]:
        """All of a kind, less what Kubernetes itself puts into a namespace."""
        found: list[dict[str, Any]] = self.get(kind)["items"]
        return [item for item in found if item["metadata"]["name"] not in ("default", "kube-root-ca.crt")]

    def replicas(self) -> dict[str, int]:
        """Deployments by name with their wanted pods."""
        return {item["metadata"]["name"]: item["spec"]["replicas"] for item in self.items("deployments")}

    def status(self, name: str = "chat") -> dict[str, Any]:
        """The endpoint's status."""
        found: dict[str, Any] = self.get("llmendpoint", name).get("status", {})
        return found

    def condition(self, kind: str, name: str = "chat") -> dict[str, Any]:
        """One condition; empty when it is not there."""
        return next((c for c in self.status(name).get("conditions", ()) if c["type"] == kind), {})

    def wait_condition(
        self, kind: str, status: str, reason: str | None = None, name: str = "chat"
    ) -> dict[str, Any]:
        """The condition once it is so."""

        def found() -> dict[str, Any] | None:
            condition = self.condition(kind, name)
            fits = condition.get("status") == status and reason in (None, condition.get("reason"))
            return condition if fits else None

        result: dict[str, Any] = self.cluster.wait_for(f"{kind}={status} {reason or ''} of {name}", found, 30)
        return result

    def wait_events(self, reason: str, count: int = 1) -> list[str]:
        """The messages of a reason's Events about endpoints, once there are so many: they are written after the status."""

        def found() -> list[str] | None:
            events = [e for e in self.get("events")["items"] if e["involvedObject"]["kind"] == "LLMEndpoint"]
            messages = [e["message"] for e in events if e["reason"] == reason]
            return messages if len(messages) >= count else None

        messages: list[str] = self.cluster.wait_for(f"{count} Events {reason}", found, 30)
        return messages

    def pods(self, revision: str, count: int, name: str = "chat") -> list[str]:
        """The names of a revision's pods, once there are so many."""
        select = ("-l", f"llmendpoint.io/endpoint={name},llmendpoint.io/revision={revision}")

        def found() -> list[str] | None:
            items = [
                i for i in self.get("pods", *select)["items"] if "deletionTimestamp" not in i["metadata"]
            ]
            return [item["metadata"]["name"] for item in items] if len(items) == count else None

        names: list[str] = self.cluster.wait_for(f"{count} pods of {revision}", found, 30)
        return names

    def write_pod_status(self, pod: str, status: dict[str, Any]) -> None:
        """What the kubelet would write."""
        patch = json.dumps({"status": status})
        self.cluster.kubectl(
            "patch", "pod", pod, "-n", self.name, "--subresource=status", "--type=merge", "-p", patch
        )

    def target(self, name: str = "chat") -> str:
        """The revision that the spec asks for, once the operator has seen the latest spec."""

        def found() -> str | None:
            item = self.get("llmendpoint", name)
            status = item.get("status", {})
            current = status.get("observedGeneration") == item["metadata"]["generation"]
            return status.get("targetRevision") if current else None

        revision: str = self.cluster.wait_for(f"the operator to see the spec of {name}", found, 30)
        return revision

    def bring_up(self, count: int, name: str = "chat") -> str:
        """Make the pods of the target ready and wait until it is active."""
        revision = self.target(name)
        for pod in self.pods(revision, count, name):
            self.write_pod_status(pod, READY)

        def active() -> bool:
            status = self.status(name)
            return status.get("activeRevision") == revision and status.get("readyReplicas") == count

        self.cluster.wait_for(f"revision {revision} of {name} to be active", active, 30)
        return revision
