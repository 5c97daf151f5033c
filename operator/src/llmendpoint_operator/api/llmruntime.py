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
    "its end; for example /v2/rerank or /pooling",
)
PASSED_OWN_RULE = rule(
    f"!self.lowerAscii().matches('{OPERATORS_OWN}') && !self.matches('^/v1/models(/|$)')",
    "spec.paths: the gateway does not pass /v1/models, nor paths for an engine's administrator, such as /metrics, /load, /health "
    "or /v1/load_lora_adapter; name paths that callers use, for example /v2/rerank or /pooling",
)
OF_AN_ENDPOINT = "^/[^/]+/[^/]+/v1/"
PASSED_OTHERS_RULE = rule(
    f"!self.matches('{OF_AN_ENDPOINT}')",
    "spec.paths: a path of the form /<namespace>/<name>/v1/… names an endpoint; write the path that the engine has, for example "
    "/v2/rerank",
)
"""The gateway has these rules, too (core/request/paths.py there)."""

PROBE_PORT = 8090
"""Port of the llmendpoint-probe sidecar."""

PORT_RULE = rule(
    f"self.readiness != 'Generation' || self.ports.http != {PROBE_PORT}",
    f"ports.http must not be {PROBE_PORT} with readiness: Generation, because the sidecar uses this port; let the "
    "engine listen on another port, for example 8000",
)

Path = Annotated[str, Field(min_length=1, max_length=256, json_schema_extra=rules(PATH_RULE))]


class Argument(ApiModel):
    """One argument of the engine."""

    value: Annotated[str, Field(min_length=1, max_length=1024)]
    """The argument, one word. `$(field)` stands for a field of the endpoint, for example `--dtype=$(engine.dtype)`.
    A list, such as model.servedNames, gives one argument for each item. You can use the fields of spec.engine as
    engine.<field>, and adapters (whether the endpoint has any), model.path, model.source, model.revision (the commit of an hf:// source), model.servedNames,
    ports.http, drainSeconds, accelerator.count, namespace and name."""
    when: Annotated[str, Field(min_length=1, max_length=128, pattern=r"^!?[a-z][A-Za-z.]*$")] | None = None
    """Name of a field, for example engine.maxModelLen. The argument is given only if this field is set and is not
    false or empty. With `!` before the name, for example !engine.prefixCaching, the argument is given only in the
    other cases. If not set, the argument is always given."""


class RuntimePorts(ApiModel):
    """Ports of the engine container."""

    http: Annotated[int, Field(ge=1024, le=65535)] = 8000
    """Port of the OpenAI API and of the probes."""


class Readiness(StrEnum):
    """What proves that a replica can answer."""

    NATIVE = "Native"
    GENERATION = "Generation"


class Probe(ApiModel):
    """An HTTP probe. An answer of 2xx or 3xx is a success."""

    path: Path
    """Path on the http port. An answer of 2xx or 3xx is a success."""


class Probes(ApiModel):
    """What the kubelet asks the engine."""

    startup: Probe = Probe(path="/ready")
    """Succeeds when the model is loaded and warmed up. The kubelet asks `live` only after that. If it takes longer
    than the endpoint's progressDeadlineSeconds, the container is restarted."""
    ready: Probe = Probe(path="/ready")
    """Succeeds while the replica accepts new requests."""
    live: Probe = Probe(path="/health")
    """Succeeds while the engine makes progress. If it fails, the container is restarted."""


class VolumeMount(ApiModel):
    """Where a volume appears in the engine container, as in a Pod."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of a volume of this runtime."""
    mount_path: Annotated[str, Field(min_length=1, max_length=1024)]
    """Absolute path in the container. The operator uses /tmp and /models itself."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """Path inside the volume. If not set, the whole volume."""
    read_only: bool = False
    """Mount the volume read-only."""


class Volume(ApiModel):
    """A volume of the pod. Beside the name, give one volume type, as in a Pod."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the volume. The operator itself uses `tmp` and names that begin with `model-`."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})


class LLMRuntimeSpec(ApiModel, json_schema_extra=rules(PORT_RULE)):
    """How to run one engine. Pods run as user 65532 under the restricted Pod Security level, with a read-only root
    file system, a writable /tmp and no service account token."""

    image: Annotated[str, Field(min_length=1, max_length=512)]
    """Container image of the engine, by tag or digest."""
    command: Annotated[tuple[Annotated[str, Field(max_length=1024)], ...], Field(max_length=16)] = ()
    """Command of the engine container. If not set, the entry point of the image."""
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
    """More paths of the engine that callers may POST to, for example /v2/rerank or /pooling. The gateway passes
    them to endpoints with this runtime, also as /<namespace>/<name>/<path>. docs/concepts/gateway.md ("What
    passes") lists the paths that always pass. A change restarts no pod and makes no new revision."""
    readiness: Readiness = Readiness.NATIVE
    """What proves that a replica can answer. `Native`: the engine itself. The kubelet asks probes.ready, which must
    succeed only after the engine has generated a token. `Generation`: a sidecar, llmendpoint-probe, for an engine
    without such a path. After each start of the engine it sends one request to /v1/chat/completions (or
    /v1/completions), and only then is the pod ready. It also finds out when the engine is stuck; see
    stuckAfterSeconds. probes.ready is not used, and probes.startup and probes.live must name paths that the engine
    has, such as /health."""
    loads_adapters: bool = False
    """Whether the engine loads LoRA adapters while it runs: POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM
    has them, with /v1/models and `adapters` in /load naming those that it has. An argument with `when: adapters` may
    prepare it for that. Without it `spec.adapters` of an endpoint has no effect."""
    stuck_after_seconds: Annotated[int, Field(ge=10, le=86_400)] = 120
    """Seconds after which a stuck engine is restarted. Only with readiness: Generation. An engine is stuck if it
    has answered before, and in this time answers no request of the sidecar and counts no new token in its /metrics.
    If its /metrics counts no tokens, choose more than the longest wait in the engine's own queue."""
    probe_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the sidecar llmendpoint-probe. If not set, the image of the operator. A revision records the image
    when it is made."""
    model_image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image with llmendpoint-model, which downloads models. If not set, the operator's --model-image. A revision
    records the image when it is made."""
    env: Annotated[tuple[EnvVar, ...], Field(max_length=64, json_schema_extra=map_list("name"))] = ()
    """Environment variables of the engine container and of the model downloader."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """More volumes of the pod, for example a cache."""
    volume_mounts: Annotated[
        tuple[VolumeMount, ...], Field(max_length=16, json_schema_extra=map_list("mountPath"))
    ] = ()
    """Where these volumes appear in the engine container."""
