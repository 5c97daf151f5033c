"""LLMRuntime: how to run one engine. Adding an engine is adding one of these."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field

from .base import ApiModel, map_list, rule, rules, set_list
from .llmendpoint import MOST_PATHS, EnvVar, PassedPath

PATH_RULE = rule("self.startsWith('/')", "a probe's path must begin with '/'; for example /health")

FORM = "^(/[A-Za-z0-9]+([_.-][A-Za-z0-9]+)*)+$"
OPERATORS_OWN = (
    "(^|/)((un)?load(_[^/]*)?|(reset|flush|update|start|stop|abort|release|resume|pause)_[^/]*|metrics|health(z|_[^/]*)?|"
    "readyz?|livez?|ping|state|epoch|demand|revisions|admin|shutdown|sleep|wake_up|is_sleeping|collective_rpc|"
    "(get_)?server_info)(/|$)"
)
PASSED_FORM_RULE = rule(
    f"self.matches('{FORM}')",
    "spec.paths: each must be a whole path of letters, digits and _ . - between slashes, without '..', a query or a slash at "
    "its end; for example /v1/rerank or /pooling",
)
PASSED_OWN_RULE = rule(
    f"!self.lowerAscii().matches('{OPERATORS_OWN}') && !self.matches('^/v1/models(/|$)')",
    "spec.paths: the gateway does not pass /v1/models, nor paths for an engine's administrator, such as /metrics, /load, /health "
    "or /v1/load_lora_adapter; name paths that callers use, for example /v1/rerank or /pooling",
)
OF_AN_ENDPOINT = "^/[^/]+/[^/]+/v1/"
PASSED_OTHERS_RULE = rule(
    f"!self.matches('{OF_AN_ENDPOINT}')",
    "spec.paths: a path of the form /<namespace>/<name>/v1/… names an endpoint; write the path that the engine has, for example "
    "/v1/rerank",
)
"""The gateway has these rules, too (core/paths.py there)."""

PROBE_PORT = 8090
"""Port of the llmendpoint-probe sidecar."""

PORT_RULE = rule(
    f"self.readiness != 'Generation' || self.ports.http != {PROBE_PORT}",
    f"ports.http: {PROBE_PORT} is the port of the sidecar that readiness: Generation adds; let the engine listen on "
    "another one, for example 8000",
)

Path = Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=rules(PATH_RULE))]


class Argument(ApiModel):
    """One argument of the engine."""

    value: Annotated[str, Field(min_length=1, max_length=1024)]
    """The argument, one word; `$(path)` stands for a field of the endpoint, such as `--dtype=$(engine.dtype)`. A
    list field, such as model.servedNames, gives one argument for each of its items. Known are the fields of
    spec.engine as engine.<field>, and model.path, model.source, model.revision (the commit of an hf:// source), model.servedNames,
    ports.http, drainSeconds,
    accelerator.count, namespace and name."""
    when: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^!?[a-z][A-Za-z.]*$")] | None = None
    """The argument is given only when this field is set (and not false or empty); with `!` before it, only when
    it is not. Example: engine.maxModelLen, or !engine.prefixCaching."""


class RuntimePorts(ApiModel):
    """Ports of the engine container."""

    http: Annotated[int, Field(ge=1024, le=65535)] = 8000
    """Port of the OpenAI API and of the probes."""


class Readiness(StrEnum):
    """What proves that a replica can answer."""

    NATIVE = "Native"
    GENERATION = "Generation"


class Probe(ApiModel):
    """An HTTP probe: 2xx or 3xx is success."""

    path: Path
    """Path on the http port."""


class Probes(ApiModel):
    """What the kubelet asks the engine."""

    startup: Probe = Probe(path="/ready")
    """Succeeds once the model is loaded and warmed up; liveness is asked only afterwards, and the container is
    started again when it takes longer than the endpoint's progressDeadlineSeconds."""
    ready: Probe = Probe(path="/ready")
    """Succeeds while the replica takes new requests."""
    live: Probe = Probe(path="/health")
    """Succeeds while the engine makes progress; the container is started again when it fails."""


class VolumeMount(ApiModel):
    """Where a volume appears in the engine container; as in a Pod."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of a volume of this runtime."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Absolute path in the container. /tmp and /models are the operator's."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Path inside the volume."""
    read_only: bool = False
    """Mount it read-only."""


class Volume(ApiModel):
    """A volume of the pod; every volume type of a Pod may be given beside the name."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume. `tmp` and names that begin with `model-` are the operator's."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})


class LLMRuntimeSpec(ApiModel, json_schema_extra=rules(PORT_RULE)):
    """How to run one engine. Pods run as user 65532 under the restricted Pod Security level, with a read-only root
    file system, a writable /tmp and no service-account token."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """Container image with the engine, by tag or digest."""
    command: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=16)] = ()
    """Command in place of the image's entry point."""
    args: Annotated[tuple[Argument, ...], Field(max_length=64)] = ()
    """Arguments of the engine, in this order."""
    ports: RuntimePorts = RuntimePorts()
    """Ports of the engine container."""
    probes: Probes = Probes()
    """What the kubelet asks the engine."""
    paths: Annotated[
        tuple[
            Annotated[
                PassedPath,
                Field(json_schema_extra=rules(PASSED_FORM_RULE, PASSED_OWN_RULE, PASSED_OTHERS_RULE)),
            ],
            ...,
        ],
        Field(max_length=MOST_PATHS, json_schema_extra=set_list()),
    ] = ()
    """Further paths of the engine that callers may POST to, for example /v1/rerank or /pooling. The gateway passes them to
    endpoints with this runtime, also as /<namespace>/<name>/<path>; docs/concepts/gateway.md ("What passes") lists the paths that
    always pass. A change restarts no pod and makes no revision."""
    readiness: Readiness = Readiness.NATIVE
    """Native: probes.ready is asked, and the engine itself says so only after a generation. Generation: for an engine
    that has no such path. A sidecar, llmendpoint-probe, makes a generation through /v1/chat/completions (or
    /v1/completions) after each start of the engine, and only then is the pod ready; probes.ready is not used, and
    probes.startup and probes.live must name paths that the engine has, such as /health. The sidecar also finds out when
    such an engine is stuck, see stuckAfterSeconds."""
    stuck_after_seconds: Annotated[int, Field(ge=10, le=86_400)] = 120
    """Only with readiness: Generation. An engine that has answered, and then for so long answers no generation and counts
    no token in its /metrics, is stuck, and its container is started again. Set it above the longest wait in the engine's
    own queue where its /metrics does not count tokens."""
    probe_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the sidecar. Absent: the operator's own, which a revision records when it is made."""
    model_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image with llmendpoint-model, which downloads models. Absent: the operator's --model-image, which a revision
    records when it is made."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=map_list("name"))] = ()
    """Environment variables of the engine container, and of what downloads the model."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """Further volumes of the pod, such as a cache."""
    volume_mounts: Annotated[
        tuple[VolumeMount, ...], Field(max_length=16, json_schema_extra=map_list("mountPath"))
    ] = ()
    """Where those volumes appear in the engine container."""
