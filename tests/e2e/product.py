"""The installed product, as the end-to-end tests see it: endpoints through the API server, answers through the gateway."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from openai import OpenAI

from tests.cluster import Cluster, wait_for
from tests.demo.product import NAMESPACE as SYSTEM

NAMESPACE = "e2e"
START_LIMIT_S = 240.0  # two torch processes that start at once on two busy cores
ENDPOINT_LABEL = "llmendpoint.io/endpoint"
Object = dict[str, Any]


@dataclass(frozen=True)
class Product:
    """`url` is the gateway's address on this machine."""

    cluster: Cluster
    url: str

    def openai(self, **options: Any) -> OpenAI:
        """The official SDK, without its retries unless asked for: every failure shows."""
        return OpenAI(
            base_url=f"{self.url}/v1", api_key="unused", timeout=90, **{"max_retries": 0, **options}
        )

    def post(self, body: bytes | Object, path: str = "/v1/chat/completions") -> httpx.Response:
        """A bare request through the gateway, for what an SDK would not send."""
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return httpx.post(
            f"{self.url}{path}", headers={"content-type": "application/json"}, timeout=60, **content
        )

    def apply(self, name: str, spec: Object) -> None:
        kind = {"apiVersion": "llmendpoint.io/v1alpha1", "kind": "LLMEndpoint"}
        self.cluster.apply({**kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec})

    def endpoint(self, name: str) -> Object:
        return self.cluster.get("llmendpoint", name, "-n", NAMESPACE)

    def status(self, name: str) -> Object:
        """The status, once it is about the spec as it stands."""
        found = self.endpoint(name)
        status = found.get("status", {})
        assert status.get("observedGeneration") == found["metadata"]["generation"], (
            "the operator has not seen the spec"
        )
        return status

    def condition(self, name: str, kind: str) -> Object:
        conditions = {c["type"]: c for c in self.status(name).get("conditions", [])}
        return conditions.get(kind, {"status": "absent", "reason": "", "message": ""})

    def children(self, name: str, kinds: str) -> list[Object]:
        return self.cluster.get(kinds, "-n", NAMESPACE, "-l", f"{ENDPOINT_LABEL}={name}")["items"]

    def events(self, name: str) -> list[Object]:
        """Events about an endpoint."""
        found = self.cluster.get("events", "-n", NAMESPACE)["items"]
        return [event for event in found if event["involvedObject"]["name"] == name]

    def pods(self, name: str) -> list[Object]:
        return self.children(name, "pods")

    def settled(self, name: str, revision: str | None = None) -> Object | None:
        """The status, when exactly the wanted pods are there and ready, of `revision` where one is named."""
        wanted = self.endpoint(name)["spec"]["replicas"]
        status = self.status(name)
        pods = self.pods(name)
        done = (
            status.get("readyReplicas", 0) == wanted
            and len(pods) == wanted
            and all(is_ready(pod) for pod in pods)
            and status.get("activeRevision") == status.get("targetRevision")
            and revision in (None, status["activeRevision"])
        )
        return status if done else None

    def wait_settled(self, name: str, revision: str | None = None) -> Object:
        try:
            return wait_for(
                f"{name} settles", lambda: self.settled(name, revision), START_LIMIT_S, every_s=0.5
            )
        except Exception as error:
            error.add_note(self.cluster.kubectl("describe", "llmendpoint,pods", "-n", NAMESPACE)[-12000:])
            raise

    def gateways(self) -> list[Object]:
        """Ready gateway pods, the oldest first."""
        pods = self.cluster.get("pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=gateway")["items"]
        return sorted(filter(is_ready, pods), key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def gateway_state(self) -> Object:
        """`/state` of the only gateway's picker."""
        [gateway] = self.gateways()
        return httpx.get(f"http://{gateway['status']['podIP']}:8081/state", timeout=10).json()

    def switched(self, name: str) -> bool:
        """Whether the revision that the spec asks for gets the requests."""
        status = self.status(name)
        return bool(status["activeRevision"] == status["targetRevision"])

    @contextmanager
    def temporary(self, name: str, spec: Object) -> Iterator[str]:
        """An endpoint for one test."""
        self.apply(name, spec)
        try:
            yield name
        finally:
            argv = ["delete", "llmendpoint", name, "-n", NAMESPACE, "--ignore-not-found"]
            self.cluster.kubectl(*argv, timeout=90)


def is_ready(pod: Object) -> bool:
    conditions = {c["type"]: c["status"] for c in pod.get("status", {}).get("conditions", [])}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def names(objects: list[Object]) -> set[str]:
    return {item["metadata"]["name"] for item in objects}


def uids(objects: list[Object]) -> set[str]:
    return {item["metadata"]["uid"] for item in objects}
