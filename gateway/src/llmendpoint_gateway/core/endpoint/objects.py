"""The fields of the watched objects that the gateway uses, parsed and frozen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llmendpoint_gateway.core.endpoint.endpoint_settings import (
    DEFAULT_CIRCUIT,
    DEFAULT_QUEUE,
    CircuitSettings,
    QueueSettings,
    parse_circuit,
    parse_first_byte,
    parse_queue,
    part,
)
from llmendpoint_gateway.core.request.paths import declared_paths
from llmendpoint_gateway.errors import MalformedObject

ENDPOINT_LABEL = "llmendpoint.io/endpoint"
REVISION_LABEL = "llmendpoint.io/revision"
PORT_NAME = "http"
MOST_ADAPTERS = 64
"""Of one endpoint, as in the CRD."""
JUDGING = ("Switching", "Observing")
"""The values of `status.rollout.state` in which the operator judges a new revision."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """How new requests are divided. `weights`: (revision, percent above 0), sorted by revision.

    `epoch` is None if only `status.activeRevision` says where requests go.
    """

    epoch: int | None
    weights: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An LLMEndpoint. `created` is RFC 3339 in UTC as Kubernetes writes it, so text order is time order.

    `draining`: names of the pods that get no new requests. `proven`: the revision that a rollout rolls back to.
    `expects`: a replica will come if there is none, because `spec.replicas` (the API server fills it in) is not 0, or
    because a scaler sees the waiting requests. `judged`: a rollout judges its new revision and rolls back if that does
    badly. `first_byte`: seconds within which an answer must begin. `paths`: those that the runtime declares beside the
    API's. `adapters`: names of the spec's LoRA adapters. `missing`: those of them that no replica could load. `access`: the
    namespaces of `spec.access`; None if it is not set (core/identity/grants.py).
    """

    namespace: str
    name: str
    created: str
    served_names: tuple[str, ...]
    active_revision: str | None
    traffic: Assignment | None = None
    draining: frozenset[str] = frozenset()
    proven: str | None = None
    expects: bool = False
    judged: bool = False
    queue: QueueSettings = DEFAULT_QUEUE
    circuit: CircuitSettings = DEFAULT_CIRCUIT
    first_byte: float | None = None
    paths: frozenset[str] = frozenset()
    adapters: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()
    labels: frozenset[tuple[str, str]] = frozenset()
    access: frozenset[str] | None = None

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def assignment(self) -> Assignment | None:
        """`status.traffic`; without it, everything goes to the active revision. None: nothing can be routed yet."""
        if self.traffic is not None or self.active_revision is None:
            return self.traffic
        return Assignment(None, ((self.active_revision, 100),))


@dataclass(frozen=True, slots=True)
class Replica:
    """One pod behind a revision's Service. `address` is `ip:port`, IPv6 in brackets."""

    address: str
    pod: str
    ready: bool
    terminating: bool

    @property
    def routable(self) -> bool:
        return self.ready and not self.terminating


@dataclass(frozen=True, slots=True)
class Slice:
    """An EndpointSlice of one revision. `endpoint` is `namespace/name`."""

    endpoint: str
    revision: str
    replicas: tuple[Replica, ...]


def object_key(body: Mapping[str, Any]) -> str:
    """`namespace/name`, the key of an object within its kind."""
    metadata = part(body, "metadata")
    try:
        return f"{metadata['namespace']}/{metadata['name']}"
    except KeyError as error:
        raise MalformedObject(f"an object without metadata.{error.args[0]}") from None


def parse_endpoint(body: Mapping[str, Any]) -> Endpoint:
    key = object_key(body)
    namespace, name = key.split("/")
    created = body["metadata"].get("creationTimestamp")
    if not isinstance(created, str):
        raise MalformedObject(f"LLMEndpoint {key}: metadata.creationTimestamp is missing")
    spec = part(body, "spec")
    served = part(spec, "model").get("servedNames") or [name]
    status = part(body, "status")
    traffic = part(status, "traffic")
    return Endpoint(
        namespace,
        name,
        created,
        tuple(served),
        status.get("activeRevision") or None,
        _assignment(key, traffic) if traffic else None,
        frozenset(traffic.get("draining") or ()),
        part(status, "rollout").get("blue") or None,
        bool(spec.get("replicas")) or _scales_from_zero(spec),
        part(status, "rollout").get("state") in JUDGING,
        parse_queue(spec),
        parse_circuit(spec),
        parse_first_byte(spec),
        declared_paths(status.get("paths")),
        frozenset(_entries(spec.get("adapters"))),
        frozenset(name for name, entry in _entries(status.get("adapters")).items() if _failed(entry)),
        frozenset(part(body["metadata"], "labels").items()),
        _access(spec),
    )


def parse_slice(body: Mapping[str, Any]) -> Slice:
    """Parse a slice. A slice of an address type that no pod has (FQDN) has no replicas."""
    key = object_key(body)
    labels = body["metadata"].get("labels") or {}
    for label in (ENDPOINT_LABEL, REVISION_LABEL):
        if not labels.get(label):
            raise MalformedObject(f"EndpointSlice {key}: the label {label} is missing")
    port = _port(body.get("ports") or [])
    family = body.get("addressType", "IPv4")
    replicas: tuple[Replica, ...] = ()
    if port is not None and family in ("IPv4", "IPv6"):
        replicas = tuple(
            _replica(entry, family, port) for entry in body.get("endpoints") or [] if entry.get("addresses")
        )
    namespace = key.split("/")[0]
    return Slice(f"{namespace}/{labels[ENDPOINT_LABEL]}", labels[REVISION_LABEL], replicas)


def _access(spec: Mapping[str, Any]) -> frozenset[str] | None:
    """An access that names no namespace is set all the same: then no other namespace may use the endpoint."""
    if spec.get("access") is None:
        return None
    found = part(spec, "access").get("namespaces")
    return (
        frozenset(name for name in found if isinstance(name, str)) if isinstance(found, list) else frozenset()
    )


def _entries(listed: Any) -> dict[str, Mapping[str, Any]]:
    """The adapters of a spec or a status by name."""
    items = listed[:MOST_ADAPTERS] if isinstance(listed, list) else []
    entries = [item for item in items if isinstance(item, Mapping) and isinstance(item.get("name"), str)]
    return {entry["name"]: entry for entry in entries}


def _failed(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("message")) and not entry.get("readyReplicas")


def _scales_from_zero(spec: Mapping[str, Any]) -> bool:
    """The builtin scaler and KEDA scale up from zero; a HorizontalPodAutoscaler does not."""
    scaling = part(spec, "autoscaling")
    return bool(scaling) and scaling.get("provider", "builtin") in ("builtin", "keda")


def _assignment(key: str, traffic: Mapping[str, Any]) -> Assignment:
    try:
        weights = sorted((str(w["revision"]), int(w["weight"])) for w in traffic.get("weights") or ())
        return Assignment(int(traffic["epoch"]), tuple(weight for weight in weights if weight[1] > 0))
    except (KeyError, TypeError, ValueError) as error:
        raise MalformedObject(
            f"LLMEndpoint {key}: status.traffic is to be {{epoch, weights: [{{revision, weight}}]}}: {error!r}"
        ) from None


def _port(ports: list[dict[str, Any]]) -> int | None:
    """The port named `http`, else the only port: a Service with a single port may leave it unnamed."""
    named = [port for port in ports if port.get("name") == PORT_NAME]
    chosen = named or (ports if len(ports) == 1 else [])
    return chosen[0].get("port") if chosen else None


def _replica(entry: Mapping[str, Any], family: str, port: int) -> Replica:
    # Kubernetes says that the addresses of one entry are interchangeable and that only the first is used.
    ip = entry["addresses"][0]
    conditions = entry.get("conditions") or {}
    ready = conditions.get("ready")
    return Replica(
        address=f"[{ip}]:{port}" if family == "IPv6" else f"{ip}:{port}",
        pod=(entry.get("targetRef") or {}).get("name") or ip,
        ready=ready is not False,  # the API says to read an unknown state (null) as ready
        terminating=conditions.get("terminating") is True,
    )
