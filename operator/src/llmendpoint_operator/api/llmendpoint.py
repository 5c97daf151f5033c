"""LLMEndpoint: one model served by a number of identical replicas."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from .autoscaling import AutoscalingSpec, AutoscalingStatus
from .base import ApiModel, ByteQuantity, Quantity, map_list, rule, rules
from .capacity import CapacityStatus
from .model import ModelSpec, ModelStatus
from .observation import SloSpec
from .rollout import RolloutSpec
from .rollout_status import OverrideStatus, RejectedStatus, RequestStatus, RolloutStatus, TrafficStatus
from .security import SecuritySpec
from .traffic import CircuitBreakerSpec, TrafficSpec

NAME_RULE = rule(
    "size(self.metadata.name) <= 52 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    "metadata.name must be at most 52 characters of a-z, 0-9 and '-', begin with a letter and end with a letter or "
    "digit, because Services and Deployments are named after it; for example qwen3-chat",
)
RESERVED_ARGS_RULE = rule(
    "self.name != 'llmendpoint' || !has(self.args) || !self.args.exists(a, "
    "a.matches('^--(model|served-model-name|host|port|drain-timeout)(=.*)?$'))",
    "runtime.args may not hold --model, --served-model-name, --host, --port or --drain-timeout: the operator sets them; "
    "use spec.model.source, spec.model.servedNames and spec.terminationGracePeriodSeconds instead",
)
ACCELERATOR_KIND_RULE = rule(
    "self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$')",
    "resources.accelerator.kind must be the resource name that a device plugin advertises on the node, "
    "with its domain; for example nvidia.com/gpu or amd.com/gpu",
)
CUDA_RULE = rule(
    "self.engine.device != 'cuda' || has(self.resources.accelerator)",
    "engine.device: cuda needs an accelerator; add resources.accelerator: {kind: nvidia.com/gpu, count: 1}, "
    "or write engine.device: cpu",
)

Name = Annotated[str, Field(min_length=1, max_length=253)]

MOST_PATHS = 16
PassedPath = Annotated[str, Field(min_length=2, max_length=128)]
"""A path that the gateway passes to an engine."""


class Device(StrEnum):
    """Where the engine computes."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class DType(StrEnum):
    """Number format of weights and activations."""

    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


class EnvVar(ApiModel):
    """One environment variable of the engine container."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Value of the variable, in clear: it is readable by everyone who may read the endpoint, so never a secret."""


class RuntimeRef(ApiModel, json_schema_extra=rules(RESERVED_ARGS_RULE)):
    """Which engine runs the model. Of the arguments, those given here come last."""

    name: Name = "llmendpoint"
    """Name of an LLMRuntime, a cluster-wide resource that says how to run one engine. See `kubectl get llmruntimes`."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Container image in place of the runtime's own."""
    args: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=32)] = ()
    """Further arguments for the engine, one word each, after those that the runtime gives."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=map_list("name"))] = ()
    """Further environment variables of the engine container; they win over the runtime's. What downloads the model gets
    of them AWS_REGION, AWS_DEFAULT_REGION, and HF_ENDPOINT and AWS_ENDPOINT_URL where the platform allows that hub (chart
    value hub.allowed); proxies and certificates of downloads are the LLMRuntime's."""


class Accelerator(ApiModel):
    """Accelerators of one replica, as a device plugin advertises them."""

    kind: Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=rules(ACCELERATOR_KIND_RULE))]
    """Extended resource name, for example `nvidia.com/gpu`. `kubectl describe node` lists what a node has."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """How many of them one replica needs."""
    product: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Which product it is, for the condition CapacityFits: a name of docs/concepts/sizing.md such as `l4`, or as node labels have
    it, `NVIDIA-L4`. Absent: the nodes' labels say it. It selects no nodes, and a change of it makes no new revision."""
    memory: ByteQuantity | None = None
    """Memory of one, for example `24Gi`, where neither the product nor the nodes tell. A change of it makes no new
    revision."""


class Toleration(ApiModel):
    """A node taint that the replicas tolerate; as in a Pod."""

    key: Annotated[str, Field(max_length=316)] | None = None
    """Taint key. Empty with operator Exists tolerates every taint."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """Whether `value` must be equal, or the taint need only exist."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Taint value, with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect to tolerate. Absent: all of them."""


class ResourcesSpec(ApiModel):
    """What one replica needs from a node."""

    accelerator: Accelerator | None = None
    """Accelerators of each replica. Absent: none."""
    cpu: Quantity | None = None
    """CPU requested for each replica, for example `4` or `500m`. There is no CPU limit: throttling an engine only
    adds latency."""
    memory: Quantity | None = None
    """Memory of each replica, for example `16Gi`: requested, and the limit at which the container is killed."""
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)] | None = (
        None
    )
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Node taints that the replicas tolerate."""


class EngineSpec(ApiModel):
    """Settings of the engine. What is absent is the engine's own default."""

    device: Device = Device.AUTO
    """Where the engine computes; `auto` takes the accelerator where there is one."""
    dtype: DType = DType.AUTO
    """Number format of weights and activations; `auto` takes bfloat16; float16 where an accelerator has none or
    the model was saved in it; on processors without bfloat16 float32."""
    max_model_len: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Tokens of prompt plus output of one request. Absent: what the model allows."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Sequences computed in one batch."""
    max_queued_requests: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests that wait in one replica before the next is answered with 429."""
    kv_cache_memory: ByteQuantity | None = None
    """Memory for keys and values of all running sequences, for example `2Gi`."""
    prefix_caching: bool = True
    """Keep the keys and values of finished prompts, so that a prompt that begins alike is not computed again."""


class PodInputs(ApiModel):
    """The fields that a revision records: a change of any that decides what a pod is makes a new one."""

    model: ModelSpec
    """Which model is served, and under which names."""
    runtime: RuntimeRef = RuntimeRef()
    """Which engine runs the model, and how."""
    resources: ResourcesSpec = ResourcesSpec()
    """What one replica needs from a node."""
    engine: EngineSpec = EngineSpec()
    """Settings of the engine."""
    progress_deadline_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """Seconds that a replica may take to load the model and warm up before its container is started again and the
    rollout is reported as stalled. A change of it makes no new revision: the rollout that goes on has the new deadline,
    containers of revisions that exist keep their budget to start."""
    termination_grace_period_seconds: Annotated[int, Field(ge=15, le=86_400)] = 60
    """Seconds that a replica has to finish its requests when it is stopped. The first 5 pass before it is told, so
    that no new request is on its way to it. With 60, the default, a new revision gets as long as a generation of
    engine.maxModelLen tokens takes where that is longer: slo.itlSeconds each, else 0.05; 3600 at most."""


class LLMEndpointSpec(PodInputs, json_schema_extra=rules(CUDA_RULE)):
    """The wanted state of an endpoint."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """How many replicas serve the model. 0 keeps everything but the pods. `kubectl scale` sets it. With autoscaling by
    provider builtin it is the first count, and a change of it is where the scaler goes on from."""
    autoscaling: AutoscalingSpec | None = None
    """How many replicas serve the model, by what callers ask for. Absent: `replicas`."""
    revision_history_limit: Annotated[int, Field(ge=0, le=20)] = 3
    """How many old revisions are kept, scaled to zero, so that going back to one of them makes nothing new."""
    rollout: RolloutSpec = RolloutSpec()
    """How a new revision takes over."""
    slo: SloSpec = SloSpec()
    """What the endpoint's users are promised."""
    security: SecuritySpec = SecuritySpec()
    """Who may reach the endpoint's pods."""
    traffic: TrafficSpec = TrafficSpec()
    """How the gateway treats requests."""
    circuit_breaker: CircuitBreakerSpec = CircuitBreakerSpec()
    """When the gateway stops sending requests to the endpoint, because they only fail."""


class Condition(ApiModel):
    """One aspect of the endpoint's state; as in metav1."""

    type: Annotated[str, Field(max_length=64)]
    """Ready, Progressing, Degraded, Scaling, ScalingBlind, CapacityFits, CircuitOpen, NotOwned, NameConflict,
    RuntimeMissing, Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    observed_generation: int | None = None
    """The metadata.generation that the condition is about."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    reason: Annotated[str, Field(max_length=128)]
    """The cause in one word."""
    message: Annotated[str, Field(max_length=2048)]
    """The cause in a sentence, and what to do about it."""


class RevisionStatus(ApiModel):
    """The pods of one revision."""

    name: Annotated[str, Field(max_length=63)]
    """Hash of the revision; its ControllerRevision and Deployment are named `<endpoint>-<hash>`."""
    replicas: int = 0
    """Pods of this revision that are not being deleted."""
    ready_replicas: int = 0
    """Those of them that have loaded the model and answered a warm-up generation."""


class LLMEndpointStatus(ApiModel):
    """What the operator has seen and decided."""

    observed_generation: int | None = None
    """The metadata.generation that this status is about."""
    active_revision: Annotated[str, Field(max_length=63)] | None = None
    """Hash of the revision that gets new requests, or most of them. Absent: none has been ready yet."""
    target_revision: Annotated[str, Field(max_length=63)] | None = None
    """Hash of the revision that the spec asks for."""
    switched_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the assignment of requests to revisions last changed."""
    traffic: TrafficStatus | None = None
    """Who gets new requests."""
    rollout: RolloutStatus | None = None
    """The rollout that goes on, or how the last one ended."""
    model: ModelStatus | None = None
    """The model of the revision that the spec asks for, where it is downloaded."""
    rejected: RejectedStatus | None = None
    """The revision that the spec asks for, when it was rolled back."""
    request: RequestStatus | None = None
    """The answer to the last request made by annotation."""
    override: OverrideStatus | None = None
    """A revision in place of the spec's own, after `restart` or its `undo`."""
    autoscaling: AutoscalingStatus | None = None
    """The last decision on the number of replicas."""
    replicas: int = 0
    """Pods of the active revision."""
    ready_replicas: int = 0
    """Ready pods of the active revision."""
    selector: Annotated[str, Field(max_length=512)] | None = None
    """Label selector of the active revision's pods, for autoscalers."""
    revisions: Annotated[
        tuple[RevisionStatus, ...], Field(max_length=64, json_schema_extra=map_list("name"))
    ] = ()
    """Pods by revision."""
    paths: Annotated[tuple[PassedPath, ...], Field(max_length=MOST_PATHS)] = ()
    """Further paths that the gateway passes to this endpoint: the LLMRuntime of its active revision declares them."""
    url: Annotated[str, Field(max_length=512)] | None = None
    """Base URL for an OpenAI SDK; the model name is `<namespace>/<name>` or a served name."""
    capacity: CapacityStatus | None = None
    """What is known of the model's memory."""
    conditions: Annotated[
        tuple[Condition, ...], Field(max_length=16, json_schema_extra=map_list("type"))
    ] = ()
    """Ready: requests are answered. Progressing: a revision is coming up. Degraded: something is wrong, with the
    cause. Scaling and ScalingBlind, with autoscaling: what the scaler follows, and whether it knows the load.
    CapacityFits: the model fits the accelerators; a warning, which holds nothing up. CircuitOpen: gateways refuse
    requests, since too many failed. NotOwned: an object of somebody else has the name of a child, and is left alone.
    NameConflict: an older endpoint has a model name that this one claims. RuntimeMissing: the LLMRuntime is gone.
    Reconciling and Stalled, like these four, are there with status True alone, for tools that read kstatus."""
