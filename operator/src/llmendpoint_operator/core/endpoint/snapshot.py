"""Everything that a decision about one endpoint is made from, read from the caches at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...api import LLMEndpointSpec, LLMRuntimeSpec
from ..adapters.moves import PodAdapters
from ..capacity.findings import Inspected
from ..models.tasks import Awaited
from ..pods.manifests import Manifest, Owner
from ..pods.neighbours import Neighbours
from ..pods.revision import Revision
from ..rollout.evidence import Evidence
from ..scaling.circuit import Circuit
from ..scaling.outcome import Scaling
from .allowed import BY_DEFAULT, Allowed
from .disputes import Disputes
from .ownership import Foreigners
from .served import Conflict


@dataclass(frozen=True, slots=True)
class Request:
    """The request in the annotation `llmendpoint.io/request`. `problem`: why it cannot be read."""

    id: str
    action: str
    revision: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An LLMEndpoint. If its spec cannot be read, `spec` is None and `spec_error` says why."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    deleting: bool
    spec: LLMEndpointSpec | None
    spec_error: str = ""
    status: Mapping[str, Any] = field(default_factory=dict)
    stored: Mapping[str, Any] | None = None
    """The status as stored, while `status` holds only its valid part (reported.py). None before that step."""
    request: Request | None = None
    created: datetime | None = None

    @property
    def owner(self) -> Owner:
        """The endpoint as the owner of its children."""
        return Owner(self.namespace, self.name, self.uid)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server refused a write, and will refuse it again until the spec or the cluster changes."""

    target: str
    message: str


@dataclass(frozen=True, slots=True)
class ScalerAddress:
    """Where KEDA reaches this operator, and the ClusterTriggerAuthentication with the certificates."""

    address: str
    authentication: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the observers know of one endpoint; the caches do not hold it."""

    evidence: Evidence = field(default_factory=Evidence)
    scaling: Scaling | None = None
    """The scaler's decision. None without a builtin scaler."""
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    """The state of the endpoint's breaker, by gateway."""
    awaited: Awaited | None = None
    """The model of the revision that is about to be made. None if no revision waits for a model."""
    capacity: Inspected = field(default_factory=Inspected)
    """The size of the target's model, and the accelerators that it would run on."""
    adapters: Mapping[str, PodAdapters] = field(default_factory=dict)
    """What pods say of adapters, by pod."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One endpoint, its runtime and its children from the caches, and what was observed. Children of a
    revision are keyed by its hash."""

    endpoint: Endpoint
    runtime: LLMRuntimeSpec | None
    records: Mapping[str, Manifest] = field(default_factory=dict)
    """ControllerRevisions."""
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    """The records that this version can render."""
    deployments: Mapping[str, Manifest] = field(default_factory=dict)
    services: Mapping[str, Manifest] = field(default_factory=dict)
    """Services by name."""
    service_account: Manifest | None = None
    policies: Mapping[str, Manifest] = field(default_factory=dict)
    """PodDisruptionBudget and NetworkPolicy by kind."""
    scalers: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    """ScaledObject and HorizontalPodAutoscaler, by apiVersion and kind."""
    keda_missing: bool = False
    """Whether the cluster lacks the kind ScaledObject."""
    scaler_address: ScalerAddress | None = None
    """Where KEDA reaches the operator. None if KEDA is not configured."""
    neighbours: Neighbours | None = None
    """Namespaces of the gateway, operator and Prometheus that reach all pods. None: no NetworkPolicy is
    made."""
    pods: Mapping[str, tuple[Manifest, ...]] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    foreign: Foreigners = field(default_factory=dict)
    """Objects with the names of children that the endpoint does not own."""
    disputes: Disputes = field(default_factory=dict)
    """Children that another writer changes back."""
    conflicts: tuple[Conflict, ...] = ()
    """Bare model names that the endpoint claims and another one holds."""
    runtime_gone: str = ""
    """Why the spec's LLMRuntime does not exist; empty if it exists."""
    refusal: Refusal | None = None
    gateway_url: str | None = None
    allowed: Allowed = BY_DEFAULT
    """Hosts that the platform lets users name."""
    kept: int | None = None
    """The builtin scaler's last count, until the outside scaler that replaced it has reached it."""
    runtime_error: str = ""
    """Why the existing LLMRuntime cannot be read."""
    other_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Paths of readable LLMRuntimes that kept revisions use and the spec does not name, by name."""

    @property
    def wanted(self) -> int:
        """Replicas that the scaler wants; without a scaler, those of the spec."""
        if self.observed.scaling is not None:
            return self.observed.scaling.replicas
        if self.kept is not None:
            return self.kept
        return self.endpoint.spec.replicas if self.endpoint.spec else 0
