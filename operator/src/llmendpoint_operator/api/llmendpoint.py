"""LLMEndpoint: one model served by a number of identical replicas."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from .access import AccessSpec
from .adapters import ADAPTERS_RULE, MOST_ADAPTERS, Adapter, AdapterStatus
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
    "metadata.name must have at most 52 characters of a-z, 0-9 and '-', begin with a letter and end with a letter "
    "or digit, because Services and Deployments get names that begin with it; for example qwen3-chat",
)
RESERVED_ARGS_RULE = rule(
    "self.name != 'llmendpoint' || !has(self.args) || !self.args.exists(a, "
    "a.matches('^--(model|served-model-name|host|port|drain-timeout)(=.*)?$'))",
    "runtime.args must not contain --model, --served-model-name, --host, --port or --drain-timeout, because the "
    "operator sets them; use spec.model.source, spec.model.servedNames and spec.terminationGracePeriodSeconds "
    "instead",
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


class Quantization(StrEnum):
    """Number format of the weights of linear layers."""

    INT8 = "int8"
    INT4 = "int4"


class KVCacheDType(StrEnum):
    """Number format of keys and values."""

    AUTO = "auto"
    INT8 = "int8"
    FP8 = "fp8"


class EnvVar(ApiModel):
    """One environment variable of the engine container."""

    name: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
    """Name of the variable."""
    value: Annotated[str, Field(max_length=4096)] = ""
    """Value of the variable. Everyone who may read this resource can read the value, so never write a secret
    here."""


class RuntimeRef(ApiModel, json_schema_extra=rules(RESERVED_ARGS_RULE)):
    """Which engine runs the model, and how."""

    name: Name = "llmendpoint"
    """Name of an LLMRuntime, the cluster-wide resource that says how to run one engine. `kubectl get llmruntimes`
    lists them."""
    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Container image of the engine. If not set, the image of the LLMRuntime."""
    args: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=32)] = ()
    """More arguments for the engine, one word in each item. They come after the arguments of the LLMRuntime."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=map_list("name"))] = ()
    """More environment variables of the engine container. They override those of the LLMRuntime. The model downloader
    gets only AWS_REGION and AWS_DEFAULT_REGION from here, and HF_ENDPOINT and AWS_ENDPOINT_URL if the chart value
    hub.allowed lists that hub. Set proxies and certificates for downloads in the LLMRuntime."""


class Accelerator(ApiModel):
    """Accelerators of one replica, as a device plugin advertises them."""

    kind: Annotated[str, Field(min_length=1, max_length=128, json_schema_extra=rules(ACCELERATOR_KIND_RULE))]
    """Name of the extended resource, for example `nvidia.com/gpu`. `kubectl describe node` shows what a node
    has."""
    count: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of accelerators for each replica."""
    product: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """Product name of the accelerator, for the condition CapacityFits: a name from docs/concepts/sizing.md such as
    `l4`, or the value of a node label such as `NVIDIA-L4`. If not set, the operator reads it from the labels of the
    nodes. It selects no nodes, and a change makes no new revision."""
    memory: ByteQuantity | None = None
    """Memory of one accelerator, for example `24Gi`. Needed only if neither `product` nor the nodes tell it. A
    change makes no new revision."""


class Toleration(ApiModel):
    """A node taint that the replicas tolerate, as in a Pod."""

    key: Annotated[str, Field(max_length=316)] | None = None
    """Key of the taint. If not set, and operator is Exists, every taint is tolerated."""
    operator: Literal["Equal", "Exists"] = "Equal"
    """How the taint is compared. `Equal`: its value must equal `value`. `Exists`: it only needs to exist."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """Value of the taint. Only with operator Equal."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. If not set, every effect is tolerated."""


class ResourcesSpec(ApiModel):
    """What one replica needs from a node."""

    accelerator: Accelerator | None = None
    """Accelerators of each replica. If not set, a replica has none."""
    cpu: Quantity | None = None
    """CPU request of each replica, for example `4` or `500m`. The operator sets no CPU limit, because a limit only
    adds latency."""
    memory: Quantity | None = None
    """Memory of each replica, for example `16Gi`. It is the request and also the limit; a container that uses more
    is killed."""
    node_selector: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)] | None = (
        None
    )
    """Labels that a node must have."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Node taints that the replicas tolerate."""


class EngineSpec(ApiModel):
    """Settings of the engine. For a field that is not set, the engine uses its own default."""

    device: Device = Device.AUTO
    """Where the engine computes. `auto`: on the accelerator if there is one, else on the CPU. `cpu`: on the CPU.
    `cuda`: on the accelerator; this needs `resources.accelerator`."""
    dtype: DType = DType.AUTO
    """Number format of weights and activations. With `auto` the engine uses bfloat16, with two exceptions. It uses
    float16 if the accelerator has no bfloat16 or the model was saved in float16. It uses float32 on a CPU without
    bfloat16."""
    quantization: Quantization | None = None
    """Quantize the weights of linear layers when the model is loaded. `int8`: 8 bits, one scale for each output. `int4`: 4
    bits, one scale for each 32 inputs. With the bundled engine on a CPU only. If not set, the weights are as the model's
    files have them; docs/concepts/weights.md has the formats of quantized checkpoints."""
    max_model_len: Annotated[int, Field(ge=1, le=16_777_216)] | None = None
    """Largest number of tokens of one request, prompt and output together. If not set, the limit of the model."""
    max_num_seqs: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Largest number of requests that one replica computes in one batch. If not set, the engine's own default."""
    max_queued_requests: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Largest number of requests that wait in one replica. The replica answers a further request with 429."""
    kv_cache_memory: ByteQuantity | None = None
    """Memory for the KV cache, which holds keys and values of all running requests; for example `2Gi`. With several accelerators: of each."""
    kv_cache_dtype: Annotated[KVCacheDType | None, Field(alias="kvCacheDtype")] = None
    """Number format of the KV cache. `int8` and `fp8` hold about twice as many tokens in the same memory, with the bundled
    engine on a CPU only. With `auto` it is that of `dtype`. If not set, the engine's own default."""
    prefix_caching: bool = True
    """Keep the KV cache of finished prompts. A later prompt with the same beginning then starts faster."""
    max_adapters: Annotated[int, Field(ge=1, le=MOST_ADAPTERS)] = 8
    """Largest number of LoRA adapters that one replica holds at once. Each takes memory of the accelerator. It matters only
    with `adapters`."""
    max_adapter_rank: Annotated[int, Field(ge=1, le=512)] = 16
    """Largest rank of a LoRA adapter. The memory of each adapter grows with it. It matters only with `adapters`."""


class PodInputs(ApiModel):
    """The fields that a revision records: a change of any that decides what a pod is makes a new one."""

    model: ModelSpec
    """Which model is served, and under which names."""
    runtime: RuntimeRef = RuntimeRef()
    """Which engine runs the model, and how."""
    resources: ResourcesSpec = ResourcesSpec()
    """What one replica needs from a node."""
    engine: EngineSpec = EngineSpec()
    """Settings of the engine. For a field that is not set, the engine uses its own default."""
    adapters: Annotated[
        tuple[Adapter, ...], Field(max_length=MOST_ADAPTERS, json_schema_extra=map_list("name"))
    ] = ()
    """LoRA adapters of the model. Running replicas load them, and unload those that are not listed, without a restart. A new
    revision is made only if the active one was made without adapters, or if an adapter is on a claim that its pods have not
    mounted. At most engine.maxAdapters."""
    progress_deadline_seconds: Annotated[int, Field(ge=10, le=86_400)] = 600
    """Seconds that a replica may take to load the model and warm up. After that its container is restarted, and the
    operator reports the rollout as stalled. A change makes no new revision: the current rollout uses the new
    deadline, but containers of existing revisions keep the time to start that they were made with."""
    termination_grace_period_seconds: Annotated[int, Field(ge=15, le=86_400)] = 60
    """Seconds that a replica has to finish its requests when it stops. For the first 5 seconds the replica still
    accepts requests, because some may already be on their way. With the default, 60, a new revision gets more time
    if a generation of `engine.maxModelLen` tokens takes longer (`slo.ttftSeconds`, then `slo.itlSeconds` or 0.05
    for each token), but at most 3600."""


class LLMEndpointSpec(PodInputs, json_schema_extra=rules(CUDA_RULE, ADAPTERS_RULE)):
    """The desired state of the endpoint."""

    replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of replicas. 0 removes the pods and keeps everything else. `kubectl scale` sets it. With `autoscaling`
    and provider builtin it is only the first count; if you change it later, the scaler continues from the new
    count."""
    autoscaling: AutoscalingSpec | None = None
    """How the number of replicas follows the load. If not set, `replicas` applies."""
    revision_history_limit: Annotated[int, Field(ge=0, le=20)] = 3
    """Number of old revisions that the operator keeps, with zero replicas, so that you can go back to one of
    them."""
    rollout: RolloutSpec = RolloutSpec()
    """How a new revision replaces the old one."""
    slo: SloSpec = SloSpec()
    """Latencies that the endpoint should keep, as 95th percentiles. A rollout uses them as limits while it observes
    the new revision."""
    security: SecuritySpec = SecuritySpec()
    """Who may connect to the pods of the endpoint."""
    access: AccessSpec | None = None
    """Which keys may use the endpoint, if the gateway asks for keys (chart value gateway.authentication). If not set: keys of
    the endpoint's own namespace; with authentication Optional also requests without a key. A change makes no new
    revision."""
    traffic: TrafficSpec = TrafficSpec()
    """How the gateway handles the requests of the endpoint."""
    circuit_breaker: CircuitBreakerSpec = CircuitBreakerSpec()
    """When the gateway stops sending requests to the endpoint because they only fail. The breaker opens at
    `errorRate`, and when every replica is ejected. While it is open, the gateway answers at once with 503 and
    Retry-After. After `openSeconds` the gateway sends one request at a time as a trial; good answers close the
    breaker. While a rollout observes its new revision, the breaker stays closed, because the rollout can roll
    back."""


class Condition(ApiModel):
    """One aspect of the state of the endpoint, as in metav1."""

    type: Annotated[str, Field(max_length=64)]
    """Ready, Progressing, Degraded, Scaling, ScalingBlind, CapacityFits, AdaptersReady, CircuitOpen, VerdictLate,
    NotOwned, NameConflict, RuntimeMissing, Reconciling or Stalled."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition is true."""
    observed_generation: int | None = None
    """The metadata.generation that the condition describes."""
    last_transition_time: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """When `status` last changed."""
    reason: Annotated[str, Field(max_length=128)]
    """The cause in one word."""
    message: Annotated[str, Field(max_length=2048)]
    """The cause in a sentence, and what to do about it."""


class RevisionStatus(ApiModel):
    """The pods of one revision."""

    name: Annotated[str, Field(max_length=63)]
    """Hash of the revision. Its ControllerRevision and its Deployment have the name `<endpoint>-<hash>`."""
    replicas: int = 0
    """Number of pods of this revision, without those that are being deleted."""
    ready_replicas: int = 0
    """Number of these pods that have loaded the model and answered a warm-up request."""


class LLMEndpointStatus(ApiModel):
    """What the operator has seen and decided."""

    observed_generation: int | None = None
    """The metadata.generation that this status describes."""
    active_revision: Annotated[str, Field(max_length=63)] | None = None
    """Hash of the revision that gets new requests, or most of them. Not set until a revision has been ready."""
    target_revision: Annotated[str, Field(max_length=63)] | None = None
    """Hash of the revision that the spec describes."""
    switched_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When the operator last changed which revision gets which share of the requests."""
    traffic: TrafficStatus | None = None
    """Which revision gets new requests."""
    rollout: RolloutStatus | None = None
    """The current rollout, or how the last one ended."""
    model: ModelStatus | None = None
    """The downloaded model of the revision that the spec describes."""
    adapters: Annotated[
        tuple[AdapterStatus, ...], Field(max_length=MOST_ADAPTERS, json_schema_extra=map_list("name"))
    ] = ()
    """The LoRA adapters of the spec."""
    rejected: RejectedStatus | None = None
    """The revision that the spec describes, if it was rolled back."""
    request: RequestStatus | None = None
    """The answer to the last request by annotation, such as `kubectl llm rollout promote` makes."""
    override: OverrideStatus | None = None
    """A revision that runs in place of the one that the spec describes, after `kubectl llm rollout restart` or its
    `undo`."""
    autoscaling: AutoscalingStatus | None = None
    """The last decision about the number of replicas."""
    replicas: int = 0
    """Number of pods of the active revision."""
    ready_replicas: int = 0
    """Number of ready pods of the active revision."""
    selector: Annotated[str, Field(max_length=512)] | None = None
    """Label selector of the pods of the active revision, for autoscalers."""
    revisions: Annotated[
        tuple[RevisionStatus, ...], Field(max_length=64, json_schema_extra=map_list("name"))
    ] = ()
    """Pods of each revision."""
    paths: Annotated[tuple[PassedPath, ...], Field(max_length=MOST_PATHS)] = ()
    """More paths that the gateway passes to this endpoint. The LLMRuntime of the active revision declares them."""
    url: Annotated[str, Field(max_length=512)] | None = None
    """Base URL for an OpenAI SDK. The model name is `<namespace>/<name>` or one of the served names."""
    capacity: CapacityStatus | None = None
    """What the operator knows about the memory that the model needs."""
    conditions: Annotated[
        tuple[Condition, ...], Field(max_length=16, json_schema_extra=map_list("type"))
    ] = ()
    """What is true of the endpoint. The last seven of these types are present only while their status is True.
    `Ready`: whether the endpoint answers requests; also True if it is scaled to zero on purpose. `Progressing`:
    whether a revision or a replica is starting. `Degraded`: whether something is wrong; reason and message name the
    cause. `Scaling`: whether the scaler follows its signals; only with autoscaling. `ScalingBlind`: whether the
    scaler knows no load; only with autoscaling. `CapacityFits`: whether the model fits the accelerators. It is a
    warning and stops nothing. `AdaptersReady`: whether every ready replica has every adapter; only with adapters.
    `CircuitOpen`: gateways refuse requests, because too many requests failed.
    `VerdictLate`: at the present traffic, the verdict on a new revision comes after rollout.observe.maxDuration.
    `NotOwned`: an object of somebody else has a name that the endpoint needs; the operator does not change that
    object. `NameConflict`: an older endpoint has a model name that this one claims. `RuntimeMissing`: the
    LLMRuntime does not exist. `Reconciling`: work goes on; for tools that read kstatus. `Stalled`: the state will
    not improve without a change; for tools that read kstatus."""
