"""The custom resources as pydantic models: the one source of crds/ and docs/reference.md."""

from .llmendpoint import (
    Accelerator,
    EngineSpec,
    EnvVar,
    LLMEndpointSpec,
    LLMEndpointStatus,
    ModelSpec,
    PodInputs,
    ResourcesSpec,
    RolloutSpec,
    RuntimeRef,
    Toleration,
)
from .llmruntime import Argument, LLMRuntimeSpec, Probe, Probes, RuntimePorts, Volume, VolumeMount

GROUP = "llmendpoint.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

__all__ = [
    "API_VERSION",
    "GROUP",
    "VERSION",
    "Accelerator",
    "Argument",
    "EngineSpec",
    "EnvVar",
    "LLMEndpointSpec",
    "LLMEndpointStatus",
    "LLMRuntimeSpec",
    "ModelSpec",
    "PodInputs",
    "Probe",
    "Probes",
    "ResourcesSpec",
    "RolloutSpec",
    "RuntimePorts",
    "RuntimeRef",
    "Toleration",
    "Volume",
    "VolumeMount",
]
