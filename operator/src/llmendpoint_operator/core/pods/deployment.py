"""The Deployment of one revision, rendered only from what its ControllerRevision recorded.

If existing revisions rendered differently, the next upgrade of the operator would restart their pods. Such a
change therefore needs a new TEMPLATE_VERSION beside the old one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from ...api import PROBE_PORT, PodInputs, Readiness
from ...errors import SpecError
from ..adapters.mounts import claims_of, mount_path, volume_name
from ..models.files import CACHE_PATH, FETCHED_PATH, IMAGE_PATH, OCI, VOLUME, Delivery, delivery, revision_hub
from ..models.jobs import make_init_container
from ..names import (
    CONTAINER,
    PORT_NAME,
    PRE_STOP_SECONDS,
    PROBE_CONTAINER,
    USER,
    child_name,
    labels,
    pod_selector,
)
from .arguments import field_values, render_arguments, split_pvc
from .grace import with_grace
from .manifests import Manifest, Owner, child_metadata, container_security, environment
from .revision import Revision

STARTUP_PERIOD_SECONDS = 2
STUCK_GRACE_SECONDS = 15
"""Grace period of a stuck engine: its requests are lost anyway, and it seldom ends at SIGTERM."""


def make_deployment(
    owner: Owner, revision: Revision, replicas: int, deadline_seconds: int | None = None
) -> Manifest:
    """The engine pods of a revision. `deadline_seconds`: the spec's present value, which is not part of a
    pod. Raises SpecError if the runtime's arguments cannot be rendered."""
    revision = with_grace(revision)
    files = _find_files(revision)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": child_metadata(owner, child_name(owner.name, revision.hash), revision.hash),
        "spec": {
            "replicas": replicas,
            "progressDeadlineSeconds": deadline_seconds or revision.inputs.progress_deadline_seconds,
            "revisionHistoryLimit": 0,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "selector": {"matchLabels": pod_selector(owner.name, revision.hash)},
            "template": {
                "metadata": {"labels": labels(owner.name, revision.hash)},
                "spec": _pod_spec(owner, revision, files),
            },
        },
    }


@dataclass(frozen=True, slots=True)
class _Files:
    """How a pod gets the model's files. `volume`: where they are, mounted at `path`; None without a volume.
    `fetched`: an init container downloads them. `hub`: where they are downloaded from."""

    volume: Manifest | None
    path: str
    fetched: bool
    hub: str


def _pod_spec(owner: Owner, revision: Revision, files: _Files) -> Manifest:
    inputs = revision.inputs
    spec: Manifest = {
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": inputs.termination_grace_period_seconds,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(owner, revision, files)],
        "volumes": _volumes(revision, files),
    }
    first = _before_the_engine(revision, files)
    if first:
        spec["initContainers"] = first
    if files.fetched and inputs.model.cache is not None:
        spec["securityContext"] |= {"fsGroup": USER, "fsGroupChangePolicy": "OnRootMismatch"}
    if inputs.resources.node_selector:
        spec["nodeSelector"] = dict(inputs.resources.node_selector)
    if inputs.resources.tolerations:
        spec["tolerations"] = [_json(toleration) for toleration in inputs.resources.tolerations]
    return spec


def _before_the_engine(revision: Revision, files: _Files) -> list[Manifest]:
    found = []
    if files.fetched:
        version = revision.template_version
        found.append(
            make_init_container(revision.commit, revision.inputs, revision.runtime, version, files.hub)
        )
    if revision.runtime.readiness is Readiness.GENERATION:
        found.append(_probe_sidecar(revision))
    return found


def _container(owner: Owner, revision: Revision, files: _Files) -> Manifest:
    inputs, runtime = revision.inputs, revision.runtime
    fields = field_values(owner.namespace, owner.name, inputs, runtime.ports.http, revision.commit, files.hub)
    container: Manifest = {
        "name": CONTAINER,
        "image": inputs.runtime.image or runtime.image,
        "args": [*render_arguments(runtime.args, fields), *inputs.runtime.args],
        "ports": [{"name": PORT_NAME, "containerPort": runtime.ports.http, "protocol": "TCP"}],
        "lifecycle": {"preStop": {"sleep": {"seconds": PRE_STOP_SECONDS}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        "volumeMounts": _mounts(revision, files),
        **_probes(revision),
    }
    optional = {
        "command": list(runtime.command),
        "env": environment(runtime.env, inputs.runtime.env),
        "resources": _resources(inputs),
    }
    return container | {key: value for key, value in optional.items() if value}


def _probe_sidecar(revision: Revision) -> Manifest:
    """A native sidecar: it starts before the engine, stops after it, and restarts independently."""
    runtime = revision.runtime
    if runtime.probe_image is None:
        raise SpecError(
            "LLMRuntime spec.probeImage",
            "readiness: Generation needs the image of llmendpoint-probe; set it, or the chart's operator.image",
        )
    return {
        "name": PROBE_CONTAINER,
        "image": runtime.probe_image,
        "command": ["llmendpoint-probe"],
        "args": [
            f"--engine-url=http://127.0.0.1:{runtime.ports.http}",
            f"--health-path={runtime.probes.live.path}",
            f"--port={PROBE_PORT}",
            *([f"--stuck-after={runtime.stuck_after_seconds}"] if _lives_by_sidecar(revision) else []),
        ],
        "restartPolicy": "Always",
        "ports": [{"name": PROBE_CONTAINER, "containerPort": PROBE_PORT, "protocol": "TCP"}],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        "livenessProbe": _probe("/healthz", 10, 3, timeout=5, port=PROBE_PORT),
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
    }


def _resources(inputs: PodInputs) -> Manifest:
    requests: Manifest = {}
    limits: Manifest = {}
    if inputs.resources.cpu is not None:
        requests["cpu"] = inputs.resources.cpu
    if inputs.resources.memory is not None:
        requests["memory"] = limits["memory"] = inputs.resources.memory
    accelerator = inputs.resources.accelerator
    if accelerator is not None:
        limits[accelerator.kind] = requests[accelerator.kind] = str(accelerator.count)
    return {key: value for key, value in (("limits", limits), ("requests", requests)) if value}


def _probes(revision: Revision) -> Manifest:
    """With readiness: Generation the kubelet asks the sidecar, which has the pod's address too."""
    probes = revision.runtime.probes
    budget = math.ceil(revision.inputs.progress_deadline_seconds / STARTUP_PERIOD_SECONDS)
    by_generation = revision.runtime.readiness is Readiness.GENERATION
    path, port = ("/ready", PROBE_PORT) if by_generation else (probes.ready.path, PORT_NAME)
    return {
        "startupProbe": _probe(probes.startup.path, STARTUP_PERIOD_SECONDS, budget, timeout=2),
        "readinessProbe": _probe(path, 2, 2, timeout=2, port=port),
        "livenessProbe": _liveness(revision),
    }


def _lives_by_sidecar(revision: Revision) -> bool:
    return revision.runtime.readiness is Readiness.GENERATION and revision.template_version >= 2


def _liveness(revision: Revision) -> Manifest:
    """The sidecar's /live covers the engine's own health path too. Without it only that path is asked."""
    if not _lives_by_sidecar(revision):
        return _probe(revision.runtime.probes.live.path, 10, 3, timeout=5)
    probe = _probe("/live", 10, 3, timeout=5, port=PROBE_PORT)
    return probe | {"terminationGracePeriodSeconds": STUCK_GRACE_SECONDS}


def _probe(path: str, period: int, failures: int, timeout: int, port: str | int = PORT_NAME) -> Manifest:
    return {
        "httpGet": {"path": path, "port": port},
        "periodSeconds": period,
        "failureThreshold": failures,
        "timeoutSeconds": timeout,
    }


def _volumes(revision: Revision, files: _Files) -> list[Manifest]:
    volumes: list[Manifest] = [{"name": "tmp", "emptyDir": {}}]
    if files.volume is not None:
        volumes.append({"name": VOLUME, **files.volume})
    for claim in claims_of(revision.inputs.adapters):
        if not _is_models(claim, files):  # two volumes of one claim would keep the pod from starting
            source = {"claimName": claim, "readOnly": True}
            volumes.append({"name": volume_name(claim), "persistentVolumeClaim": source})
    return volumes + [_json(volume) for volume in revision.runtime.volumes]


def _find_files(revision: Revision) -> _Files:
    """The revision's files, without a volume if the engine has the model in its image or downloads it
    itself."""
    model = revision.inputs.model
    how, hub, found = delivery(model), revision_hub(revision), split_pvc(model.source)
    path = CACHE_PATH if model.cache else FETCHED_PATH
    volume: Manifest | None = None
    if model.source.startswith(OCI):
        path = IMAGE_PATH
        volume = {"image": {"reference": model.source.removeprefix(OCI), "pullPolicy": "IfNotPresent"}}
    elif found is not None:
        path = f"/models/{found[0]}"
        volume = {"persistentVolumeClaim": {"claimName": found[0], "readOnly": True}}
    elif how is Delivery.JOB and model.cache is not None:
        volume = {"persistentVolumeClaim": {"claimName": model.cache.claim_name, "readOnly": True}}
    elif how is Delivery.POD:
        claim = {"persistentVolumeClaim": {"claimName": model.cache.claim_name}} if model.cache else None
        volume = claim or {"emptyDir": {}}
    return _Files(volume, path, how is Delivery.POD, hub)


def _mounts(revision: Revision, files: _Files) -> list[Manifest]:
    mounts: list[Manifest] = [{"name": "tmp", "mountPath": "/tmp"}]
    if files.volume is not None:
        mounts.append({"name": VOLUME, "mountPath": files.path, "readOnly": True})
    for claim in claims_of(revision.inputs.adapters):
        name = VOLUME if _is_models(claim, files) else volume_name(claim)
        mounts.append({"name": name, "mountPath": mount_path(claim), "readOnly": True})
    return mounts + [_json(mount) for mount in revision.runtime.volume_mounts]


def _is_models(claim: str, files: _Files) -> bool:
    """Whether the volume with the model is this claim."""
    volume = files.volume or {}
    return bool(volume.get("persistentVolumeClaim", {}).get("claimName") == claim)


def _json(model: Any) -> Manifest:
    """The JSON without null and false values: the API server drops those, and they would look like drift."""
    dumped = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {key: value for key, value in dumped.items() if value is not False}
