"""All that a decision about one endpoint is made from, read at one moment from the caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ...api import LLMEndpointSpec, LLMRuntimeSpec
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
    """What somebody asks for by the annotation `llmendpoint.io/request`. `problem`: why it cannot be read."""

    id: str
    action: str
    revision: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An LLMEndpoint. `spec` is None when it cannot be read, and `spec_error` says why."""

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
    """The status as it stands there, once `status` holds only what can be true of it (reported.py)."""
    request: Request | None = None
    created: datetime | None = None

    @property
    def owner(self) -> Owner:
        """Owner of the children."""
        return Owner(self.namespace, self.name, self.uid)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The API server refused one of our writes, and will again until somebody changes something."""

    target: str
    message: str


@dataclass(frozen=True, slots=True)
class ScalerAddress:
    """Where KEDA finds this operator, and the ClusterTriggerAuthentication with the certificates for it."""

    address: str
    authentication: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the observers know of one endpoint and no cache holds."""

    evidence: Evidence = field(default_factory=Evidence)
    scaling: Scaling | None = None
    """What the scaler decided. None: there is none."""
    circuits: Mapping[str, Circuit] = field(default_factory=dict)
    """The endpoint's breaker, by gateway."""
    awaited: Awaited | None = None
    """The model of the revision that is about to be made. None: no revision waits for one."""
    capacity: Inspected = field(default_factory=Inspected)
    """How large the target's model is, and what it would run on."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One endpoint, its runtime and its children as the caches hold them, and what was observed. Children of a revision
    are keyed by its hash."""

    endpoint: Endpoint
    runtime: LLMRuntimeSpec | None
    records: Mapping[str, Manifest] = field(default_factory=dict)
    """ControllerRevisions."""
    revisions: Mapping[str, Revision] = field(default_factory=dict)
    """Those of the records that this version can render."""
    deployments: Mapping[str, Manifest] = field(default_factory=dict)
    services: Mapping[str, Manifest] = field(default_factory=dict)
    """Services by name."""
    service_account: Manifest | None = None
    policies: Mapping[str, Manifest] = field(default_factory=dict)
    """PodDisruptionBudget and NetworkPolicy by kind."""
    scalers: Mapping[tuple[str, str], Manifest] = field(default_factory=dict)
    """ScaledObject and HorizontalPodAutoscaler, by apiVersion and kind."""
    keda_missing: bool = False
    """Whether the cluster knows no ScaledObject."""
    scaler_address: ScalerAddress | None = None
    """Where KEDA reaches the operator. None: nowhere."""
    neighbours: Neighbours | None = None
    """Who always reaches the pods. None: nobody is told apart, and no NetworkPolicy is made."""
    pods: Mapping[str, tuple[Manifest, ...]] = field(default_factory=dict)
    observed: Observed = field(default_factory=Observed)
    foreign: Foreigners = field(default_factory=dict)
    """Objects in the place of children that are not the endpoint's own."""
    disputes: Disputes = field(default_factory=dict)
    """Children that something changes back."""
    conflicts: tuple[Conflict, ...] = ()
    """Bare model names that the endpoint claims and another one has."""
    runtime_gone: str = ""
    """Why there is no LLMRuntime of the spec's name; empty where there is one."""
    refusal: Refusal | None = None
    gateway_url: str | None = None
    allowed: Allowed = BY_DEFAULT
    """What the platform lets users name."""
    kept: int | None = None
    """The builtin scaler's last count, while an outside scaler that took its place has not reached it yet."""
    runtime_error: str = ""
    """Why the LLMRuntime, which is there, cannot be read."""
    other_paths: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The paths that the other LLMRuntimes of kept revisions declare, by name; without those that cannot be read."""

    @property
    def wanted(self) -> int:
        """Replicas that the scaler wants, or without one the spec."""
        if self.observed.scaling is not None:
            return self.observed.scaling.replicas
        if self.kept is not None:
            return self.kept
        return self.endpoint.spec.replicas if self.endpoint.spec else 0
