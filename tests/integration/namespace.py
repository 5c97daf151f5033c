"""A namespace with endpoints: a test is its user and plays its kubelet, which writes pods ready."""

from __future__ import annotations

import json
import uuid
from typing import Any

from tests.cluster import Cluster
from tests.integration.installed import endpoint

READY = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}],
}


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
