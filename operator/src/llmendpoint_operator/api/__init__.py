"""The custom resources as pydantic models: the one source of crds/ and of docs/reference/."""

from .access import AccessSpec
from .adapters import MOST_ADAPTERS, Adapter
from .llmendpoint import (
    Accelerator,
    EngineSpec,
    EnvVar,
    LLMEndpointSpec,
    LLMEndpointStatus,
    PodInputs,
    ResourcesSpec,
    RuntimeRef,
    Toleration,
)
from .llmkey import Grant, KeyHash, LLMKeySpec, Priority
from .llmruntime import (
    PROBE_PORT,
    Argument,
    LLMRuntimeSpec,
    Probe,
    Probes,
    Readiness,
    RuntimePorts,
    Volume,
    VolumeMount,
)
from .model import CacheScope, ModelCache, ModelCredentials, ModelSpec
from .observation import ErrorRateLimit, LatencyLimit, ObserveSpec, OnInconclusive, SloSpec
from .rollout import CanarySpec, CanaryStep, Capacity, RolloutSpec, Strategy
from .rollout_status import Mode, RolloutState
from .verification import Comparison, Expectation, Prompt, VerificationSpec

GROUP = "llmendpoint.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

__all__ = [
    "API_VERSION",
    "GROUP",
    "MOST_ADAPTERS",
    "PROBE_PORT",
    "VERSION",
    "Accelerator",
    "AccessSpec",
    "Adapter",
    "Argument",
    "CacheScope",
    "CanarySpec",
    "CanaryStep",
    "Capacity",
    "Comparison",
    "EngineSpec",
    "EnvVar",
    "ErrorRateLimit",
    "Expectation",
    "Grant",
    "KeyHash",
    "LLMEndpointSpec",
    "LLMEndpointStatus",
    "LLMKeySpec",
    "LLMRuntimeSpec",
    "LatencyLimit",
    "Mode",
    "ModelCache",
    "ModelCredentials",
    "ModelSpec",
    "ObserveSpec",
    "OnInconclusive",
    "PodInputs",
    "Priority",
    "Probe",
    "Probes",
    "Prompt",
    "Readiness",
    "ResourcesSpec",
    "RolloutSpec",
    "RolloutState",
    "RuntimePorts",
    "RuntimeRef",
    "SloSpec",
    "Strategy",
    "Toleration",
    "VerificationSpec",
    "Volume",
    "VolumeMount",
]
