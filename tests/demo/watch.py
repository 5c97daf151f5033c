"""Live progress: what pods and endpoints do, one line for each change, and a sign of life when nothing changes."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
from kubernetes import client, config

from tests.cluster.errors import ClusterError
from tests.cluster.progress import say

_QUIET_S = 4.0
_POLL_S = 0.3
Object = dict[str, Any]


@dataclass(frozen=True)
class Seen:
    """What one object does now; `done` when that is what is waited for."""

    name: str
    state: str
    done: bool


class Viewer:
    """Reads a cluster through the official client: far cheaper than a kubectl for each look."""

    def __init__(self, kubeconfig: str) -> None:
        self._api = config.new_client_from_config(kubeconfig)
        self._core = client.CoreV1Api(self._api)
        self._custom = client.CustomObjectsApi(self._api)

    def pods(self, namespace: str, selector: str) -> list[Object]:
        found = self._core.list_namespaced_pod(namespace, label_selector=selector)
        return [self._api.sanitize_for_serialization(pod) for pod in found.items]

    def endpoint(self, namespace: str, name: str) -> Object:
        return self._custom.get_namespaced_custom_object(
            "llmendpoint.io", "v1alpha1", namespace, "llmendpoints", name
        )

    def accelerators(self, kind: str) -> int:
        """How many accelerators of that kind the nodes offer."""
        nodes = self._core.list_node().items
        return sum(int((node.status.allocatable or {}).get(kind, 0)) for node in nodes)


def platform(viewer: Viewer, namespace: str) -> Callable[[], list[Seen]]:
    """The operator's and the gateway's pods."""

    def look() -> list[Seen]:
        seen = [seen_pod(pod, None) for pod in viewer.pods(namespace, "app.kubernetes.io/component")]
        wanted = {"llmendpoint-operator", "llmendpoint-gateway"}
        missing = {name for name in wanted if not any(s.name.startswith(f"pod {name}") for s in seen)}
        return seen + [Seen(f"deployment {name}", "no pod yet", False) for name in sorted(missing)]

    return look


def endpoint(viewer: Viewer, namespace: str, name: str) -> Callable[[], list[Seen]]:
    """An endpoint with its pods; done when the endpoint is Ready with all its replicas."""

    def look() -> list[Seen]:
        found = viewer.endpoint(namespace, name)
        pods = viewer.pods(namespace, f"llmendpoint.io/endpoint={name}")
        return [*(seen_pod(pod, _engine_phase) for pod in pods), seen_endpoint(found)]

    return look


def runs_other_image(viewer: Viewer, namespace: str, name: str, image: str) -> bool:
    """True when an endpoint's pods run an engine image that is not `image`."""
    pods = viewer.pods(namespace, f"llmendpoint.io/endpoint={name}")
    return any(container["image"] != image for pod in pods for container in pod["spec"]["containers"])


def follow(
    look: Callable[[], list[Seen]], limit_s: float, started: float, known: dict[str, str] | None = None
) -> None:
    """Print every change of what is `known` until all is done; a sign of life every few seconds."""
    known = {} if known is None else known
    deadline, spoken = time.monotonic() + limit_s, time.monotonic()
    while True:
        seen = look()
        for item in seen:
            if known.get(item.name) != item.state:
                known[item.name] = item.state
                spoken = time.monotonic()
                say(f"{spoken - started:6.1f} s  {item.name}: {item.state}")
        waiting = [item for item in seen if not item.done]
        if seen and not waiting:
            return
        if time.monotonic() > deadline:
            raise ClusterError(
                "not ready in time: " + "; ".join(f"{item.name}: {item.state}" for item in waiting)
            )
        if time.monotonic() - spoken > _QUIET_S:
            spoken = time.monotonic()
            say(f"{spoken - started:6.1f} s  … waiting for {', '.join(item.name for item in waiting)}")
        time.sleep(_POLL_S)


def seen_endpoint(found: Object) -> Seen:
    status = found.get("status", {})
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    ready = conditions.get("Ready")
    wanted = found["spec"].get("replicas", 1)
    name = f"llmendpoint {found['metadata']['name']}"
    if ready is None:
        return Seen(name, "not seen by the operator yet", False)
    replicas = f"{status.get('readyReplicas', 0)} of {wanted} replicas ready"
    current = status.get("observedGeneration") == found["metadata"]["generation"]
    if ready["status"] == "True":
        done = current and status.get("readyReplicas", 0) == wanted
        return Seen(name, f"Ready, {replicas}", done)
    why = "" if ready["reason"] == "Starting" else f": {ready['message']}"
    return Seen(name, f"{ready['reason']}, {replicas}{why}", False)


def seen_pod(pod: Object, engine_phase: Callable[[Object], str] | None) -> Seen:
    name, status = f"pod {pod['metadata']['name']}", pod.get("status", {})
    if pod["metadata"].get("deletionTimestamp"):
        return Seen(name, "stopping", True)
    conditions = {c["type"]: c for c in status.get("conditions", [])}
    if conditions.get("Ready", {}).get("status") == "True":
        return Seen(name, "Ready", True)
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") != "True":
        return Seen(name, scheduled.get("message") or "waiting for the scheduler", False)
    trouble = next(_trouble(status), None)
    if trouble:
        return Seen(name, trouble, False)
    if status.get("phase") != "Running":
        return Seen(name, f"scheduled on {pod['spec']['nodeName']}", False)
    return Seen(name, engine_phase(pod) if engine_phase else "started", False)


def _trouble(status: Object) -> Iterator[str]:
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield f"{waiting['reason']}: {waiting.get('message', '')}".strip(": ")


def _engine_phase(pod: Object) -> str:
    """What the engine says of itself on /ready; where its address cannot be reached from here, only that it runs."""
    words = {"loading": "loading the model", "warming": "warming up", "draining": "draining"}
    try:
        answer = httpx.get(f"http://{pod['status']['podIP']}:8000/ready", timeout=1.0)
        return (
            "warmed up" if answer.is_success else words.get(answer.json()["status"], answer.json()["status"])
        )
    except (httpx.HTTPError, ValueError, KeyError):
        return "starting"
