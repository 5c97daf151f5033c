"""A cluster in memory for the pure core: takes a plan's steps, and does what Deployments do to pods."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from llmendpoint_fit.core.devices import Device
from llmendpoint_operator.api import LLMEndpointSpec, LLMRuntimeSpec
from llmendpoint_operator.core.capacity.findings import Finding, Inspected
from llmendpoint_operator.core.endpoint.disputes import Dispute
from llmendpoint_operator.core.endpoint.ownership import Foreign
from llmendpoint_operator.core.endpoint.plan import Apply, Delete, Plan, Step, WriteStatus, make_plan
from llmendpoint_operator.core.endpoint.reported import cleaned, read_fields
from llmendpoint_operator.core.endpoint.served import Conflict
from llmendpoint_operator.core.endpoint.snapshot import Endpoint, Observed, Refusal, Request, Snapshot
from llmendpoint_operator.core.models.identity import Identity
from llmendpoint_operator.core.models.tasks import Awaited
from llmendpoint_operator.core.names import REVISION_LABEL
from llmendpoint_operator.core.pods.neighbours import Neighbours
from llmendpoint_operator.core.pods.revision import parse_revision
from llmendpoint_operator.core.rollout.evidence import Evidence, Figures, GatewayView, Verification
from llmendpoint_operator.core.rollout.prospects import Told
from llmendpoint_operator.core.rollout.records import find_window
from llmendpoint_operator.core.rollout.target import unresolved

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AFTER_ALL = NOW + timedelta(days=3650)
"""After every time that a test comes to."""
RUNTIME = LLMRuntimeSpec.model_validate(
    {
        "image": "engine:1",
        "args": [{"value": "--model=$(model.path)"}, {"value": "--served-model-name=$(model.servedNames)"}],
    }
)


def make_spec(**fields: Any) -> LLMEndpointSpec:
    """A spec with the demo model; fields are as in a manifest."""
    return LLMEndpointSpec.model_validate({"model": {"source": "embedded://demo"}, **fields})


@dataclass
class FakeCluster:
    """One endpoint `team-a/chat` and what was made for it."""

    spec: LLMEndpointSpec = field(default_factory=make_spec)
    runtime: LLMRuntimeSpec | None = RUNTIME
    runtime_error: str = ""
    other_paths: dict[str, tuple[str, ...]] = field(default_factory=dict)
    status: dict[str, Any] = field(default_factory=dict)
    generation: int = 1
    version: int = 1
    deleting: bool = False
    refusal: Refusal | None = None
    neighbours: Neighbours | None = None
    request: Request | None = None
    gateways: dict[str, int | None] = field(default_factory=dict)
    """Ready gateways, and the epoch that each follows."""
    gateways_known: bool = True
    gateways_lost: bool = False
    verification: Verification | None = None
    figures: dict[str, Figures] = field(default_factory=dict)
    watched: float = math.inf
    """Seconds for which figures have been gathered: few after a restart of the operator."""
    verifying: float = math.inf
    """The same for the verification."""
    told: dict[str, Told] = field(default_factory=dict)
    """What Events say, by pod; nothing of all the others."""
    unasked: bool = False
    """Whether nobody has asked for Events yet."""
    finding: Finding | None = None
    devices: tuple[Device | None, ...] | None = ()
    identities: dict[str, Identity] = field(default_factory=dict)
    foreign: dict[tuple[str, str], Foreign] = field(default_factory=dict)
    disputes: dict[tuple[str, str], Dispute] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    runtime_gone: str = ""
    inspection_image: str | None = "operator:1"
    inspection_refused: str = ""
    inspection_pods: tuple[dict[str, Any], ...] = ()
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    pods: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    made: int = 0

    def edit(self, spec: LLMEndpointSpec) -> None:
        """A user's edit of the spec."""
        if spec != self.spec:
            self.spec, self.generation, self.version = spec, self.generation + 1, self.version + 1

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """Objects of a kind by name."""
        return {name: item for (found, name), item in self.objects.items() if found == kind}

    def by_revision(self, kind: str) -> dict[str, dict[str, Any]]:
        """Objects of a kind by revision hash."""
        return {
            o["metadata"]["labels"][REVISION_LABEL]: o
            for o in self.of_kind(kind).values()
            if REVISION_LABEL in o["metadata"]["labels"]
        }

    def replicas(self) -> dict[str, int]:
        """Wanted pods by revision."""
        return {hash_: item["spec"]["replicas"] for hash_, item in self.by_revision("Deployment").items()}

    def ready(self, revision: str | None) -> int:
        """Ready pods of a revision."""
        return sum(
            pod["status"]["conditions"][0]["status"] == "True" for pod in self.pods.get(revision or "", [])
        )

    def snapshot(self, now: datetime = AFTER_ALL) -> Snapshot:
        """What the rim would plan from."""
        plain = cleaned(self._gathered(), now)
        waiting = unresolved(plain)
        awaited = Awaited(waiting[0], self.identities.get(waiting[0])) if waiting else None
        return replace(plain, observed=replace(plain.observed, awaited=awaited))

    def _gathered(self) -> Snapshot:
        endpoint = Endpoint(
            "team-a", "chat", "uid-1", self.generation, str(self.version), self.deleting, self.spec,
            status=self.status, request=self.request,
        )  # fmt: skip
        records = self.by_revision("ControllerRevision")
        parsed = {hash_: parse_revision(record) for hash_, record in records.items()}
        return Snapshot(
            endpoint,
            self.runtime,
            runtime_error=self.runtime_error,
            other_paths=self.other_paths,
            records=records,
            revisions={hash_: revision for hash_, revision in parsed.items() if revision is not None},
            deployments=self.by_revision("Deployment"),
            services=self.of_kind("Service"),
            service_account=self.objects.get(("ServiceAccount", "chat")),
            policies={
                kind: self.objects[kind, "chat"]
                for kind in ("PodDisruptionBudget", "NetworkPolicy")
                if (kind, "chat") in self.objects
            },
            neighbours=self.neighbours,
            pods={hash_: tuple(pods) for hash_, pods in self.pods.items()},
            refusal=self.refusal,
            foreign=self.foreign,
            disputes=self.disputes,
            conflicts=self.conflicts,
            runtime_gone=self.runtime_gone,
            observed=self._observed(),
        )

    def _observed(self) -> Observed:
        evidence = Evidence(
            tuple(GatewayView(pod, epoch) for pod, epoch in self.gateways.items()),
            self.gateways_known,
            self.verification,
            self.figures,
            find_window(read_fields(self.status, NOW).get("rollout", {})),
            self.gateways_lost,
            self.watched,
            self.verifying,
            self.events_told(),
        )
        inspected = Inspected(
            finding=self.finding,
            job=self.objects.get(("Job", "chat-inspect")),
            pods=self.inspection_pods,
            image=self.inspection_image,
            refused=self.inspection_refused,
            devices=self.devices,
        )
        return Observed(evidence, capacity=inspected)

    def events_told(self) -> dict[str, Told]:
        """What Events say, by pod."""
        silent = {p["metadata"]["name"]: Told() for pods in self.pods.values() for p in pods}
        return {} if self.unasked else silent | self.told

    def plan(self, now: datetime = NOW) -> Plan:
        """The plan for this moment."""
        return make_plan(self.snapshot(now), now)

    def do(self, step: Step) -> None:
        """Carry out one step."""
        if isinstance(step, WriteStatus):
            assert step.resource_version == str(self.version)
            self.status, self.version = copy.deepcopy(step.status), self.version + 1
        elif isinstance(step, Apply):
            manifest = copy.deepcopy(step.manifest)
            self.objects[manifest["kind"], manifest["metadata"]["name"]] = manifest
        elif isinstance(step, Delete):
            del self.objects[step.kind, step.name]
        self.run_deployments()

    def reconcile(self, now: datetime = NOW) -> Plan:
        """Plan once and do all of it."""
        plan = self.plan(now)
        for step in plan.steps:
            self.do(step)
        return plan

    def settle(self, now: datetime = NOW) -> int:
        """Reconcile until nothing is left to do; the number of writes."""
        writes = 0
        for _ in range(10):
            steps = self.reconcile(now).steps
            writes += len(steps)
            if not steps:
                return writes
        raise AssertionError("still writing after 10 reconciles")

    def run_deployments(self) -> None:
        """Pods follow their Deployment's count; the newest go first. Those that failed (evicted ones do) stay."""
        wanted = self.replicas()
        for revision in {*wanted, *self.pods}:
            pods = self.pods.setdefault(revision, [])
            failed = [pod for pod in pods if pod["status"]["phase"] == "Failed"]
            pods[:] = [pod for pod in pods if pod not in failed][: wanted.get(revision, 0)]
            while len(pods) < wanted.get(revision, 0):
                self.made += 1
                pods.append(loading_pod(f"chat-{revision}-{self.made}"))
            pods += failed
        self.pods = {revision: pods for revision, pods in self.pods.items() if pods}

    def make_ready(self, revision: str, count: int = 1000) -> None:
        """The first pods of a revision are ready."""
        for pod in self.pods.get(revision, [])[:count]:
            pod["status"]["conditions"][0]["status"] = "True"

    def follow(self) -> None:
        """Every gateway follows the assignment."""
        self.gateways = dict.fromkeys(self.gateways, self.status.get("traffic", {}).get("epoch"))

    @property
    def state(self) -> str:
        """Of the rollout."""
        return str(self.status["rollout"]["state"])

    def weights(self) -> dict[str, int]:
        """Percent of new requests by revision."""
        found = self.status.get("traffic", {}).get("weights", ())
        return {item["revision"]: item["weight"] for item in found}

    @property
    def active(self) -> str | None:
        """As the status says."""
        return self.status.get("activeRevision")

    @property
    def target(self) -> str:
        """As the status says."""
        return str(self.status["targetRevision"])

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition of the status; empty when it is not there."""
        return next((c for c in self.status["conditions"] if c["type"] == kind), {})


def loading_pod(name: str) -> dict[str, Any]:
    """A pod that runs and is not ready."""
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "engine", "image": "engine:1"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]},
    }
