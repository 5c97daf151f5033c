"""Jobs and init container that run `llmendpoint-model`. Its flags and exit codes:
docs/contribute/contracts.md."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from ...api import LLMRuntimeSpec, PodInputs
from ...errors import SpecError
from ..endpoint.allowed import downloader_variables
from ..names import MANAGER, MODEL_JOB_LABEL, USER
from ..pods.manifests import Manifest, Owner, child_metadata, container_security, environment
from .files import CACHE_PATH, FETCHED_PATH, VOLUME, Files, model_files, resolve_job_name

CONTAINER = "model"
PROGRESS_PORT = 8091
FORGOTTEN_AFTER_SECONDS = 300
"""Seconds after which a finished Job that resolved or deleted is removed. It is made anew if needed."""
REMOVE_SUFFIX = "-remove"
REMOVAL_SECONDS = 600
"""Deadline of a Job that deletes a model. It applies for example if no node can run the Job."""
DOWNLOAD, RESOLVE, REMOVE = "model-download", "model-resolve", "model-remove"
FILES_ANNOTATION = "llmendpoint.io/model-files"
"""The value of `Files.job_name`, by which users of the model are found."""
POD_ANNOTATION = "llmendpoint.io/model-pod"
_HOPELESS = (2, 3, 5, 6, 7, 8, 9)
"""Exit codes after which another pod would fail too."""


def make_resolve_job(
    owner: Owner, revision_hash: str, inputs: PodInputs, runtime: LLMRuntimeSpec
) -> Manifest:
    """The Job that resolves the source. Its pod's termination message has the answer."""
    args = ["resolve", f"--source={inputs.model.source}", *_pickle(inputs)]
    name = resolve_job_name(owner.uid, revision_hash)
    job = _job(owner.namespace, name, RESOLVE, inputs, _container(args, inputs, runtime), [])
    job["metadata"]["ownerReferences"] = child_metadata(owner, name, None)["ownerReferences"]
    job["spec"] |= {"ttlSecondsAfterFinished": FORGOTTEN_AFTER_SECONDS, "backoffLimit": 3}
    return job


def make_download_job(
    namespace: str, revision: str, inputs: PodInputs, runtime: LLMRuntimeSpec, hub: str = "", name: str = ""
) -> Manifest:
    """The Job that downloads to the shared claim. No endpoint owns it, because others may use the files.
    After its end it stays as the record of what the claim holds. `name`: another name, if a Job with another
    pod has the files' own."""
    files = model_files(inputs.model, revision, hub)
    container = _container(
        [*fetch_args(files, CACHE_PATH), f"--progress-port={PROGRESS_PORT}"], inputs, runtime
    )
    container["ports"] = [{"name": "progress", "containerPort": PROGRESS_PORT, "protocol": "TCP"}]
    container["volumeMounts"].append({"name": VOLUME, "mountPath": CACHE_PATH})
    job = _job(namespace, name or files.job_name, DOWNLOAD, inputs, container, [_claim(files.claim)])
    job["metadata"]["annotations"] = {
        "llmendpoint.io/model-source": files.source,
        "llmendpoint.io/model-revision": files.revision,
        FILES_ANNOTATION: files.job_name,
        POD_ANNOTATION: pod_digest(job),
    }
    job["spec"]["backoffLimit"] = 10
    return job


def pod_digest(job: Manifest) -> str:
    """A hash that distinguishes Jobs whose pods differ in image, environment or placement."""
    text = json.dumps(job["spec"]["template"]["spec"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def make_remove_job(download: Manifest) -> Manifest:
    """The Job that deletes the files of a download Job, in a pod like that Job's."""
    metadata, template = download["metadata"], download["spec"]["template"]
    name = metadata["name"] + REMOVE_SUFFIX
    container = template["spec"]["containers"][0]
    kept = ("--root=", "--name=")
    args = ["remove", *(arg for arg in container["args"] if arg.startswith(kept))]
    plain = {key: container[key] for key in _REMOVED_WITH if key in container}
    spec = {key: template["spec"][key] for key in _POD_FIELDS if key in template["spec"]}
    job = _named(metadata["namespace"], name, REMOVE)
    job["spec"] = {
        "backoffLimit": 3,
        "ttlSecondsAfterFinished": FORGOTTEN_AFTER_SECONDS,
        "activeDeadlineSeconds": REMOVAL_SECONDS,
        "template": {
            "metadata": {"labels": _labels(name, REMOVE)},
            "spec": {**spec, "containers": [{**plain, "args": args}]},
        },
    }
    return job


_POD_FIELDS = (
    "automountServiceAccountToken", "enableServiceLinks", "restartPolicy", "securityContext", "volumes",
    "nodeSelector", "tolerations",
)  # fmt: skip
_REMOVED_WITH = (
    "name", "image", "command", "resources", "securityContext", "terminationMessagePolicy", "volumeMounts",
)  # fmt: skip


def make_init_container(
    revision: str, inputs: PodInputs, runtime: LLMRuntimeSpec, template_version: int, hub: str = ""
) -> Manifest:
    """Downloads in the engine's pod before the engine starts. Pods on one node with one volume wait for each
    other. Before template 3 the container had the engine's whole environment; those pods stay unchanged."""
    path = CACHE_PATH if inputs.model.cache else FETCHED_PATH
    container = _container(fetch_args(model_files(inputs.model, revision, hub), path), inputs, runtime)
    variables = environment(runtime.env, inputs.runtime.env)
    if template_version < 3 and variables:
        container["env"] = variables
    container["volumeMounts"].append({"name": VOLUME, "mountPath": path})
    return container


def fetch_args(files: Files, root: str) -> list[str]:
    """Arguments of `llmendpoint-model fetch`."""
    args = [
        "fetch", f"--source={files.source}", f"--revision={files.revision}", f"--root={root}", f"--name={files.folder}",
    ]  # fmt: skip
    return [*args, *(["--allow-pickle"] if files.allow_pickle else [])]


def _pickle(inputs: PodInputs) -> list[str]:
    return ["--allow-pickle"] if inputs.model.allow_pickle else []


def _container(args: Sequence[str], inputs: PodInputs, runtime: LLMRuntimeSpec) -> Manifest:
    if runtime.model_image is None:
        raise SpecError(
            "LLMRuntime spec.modelImage",
            f"model.source {inputs.model.source} needs the image of llmendpoint-model; set it, or the "
            "chart's models.image",
        )
    container: Manifest = {
        "name": CONTAINER,
        "image": runtime.model_image,
        "command": ["llmendpoint-model"],
        "args": list(args),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": container_security(),
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }
    if variables := environment(downloader_variables(runtime, inputs)):
        container["env"] = variables
    if inputs.model.credentials is not None:
        container["envFrom"] = [{"secretRef": {"name": inputs.model.credentials.secret_name}}]
    return container


def _claim(name: str | None) -> Manifest:
    return {"name": VOLUME, "persistentVolumeClaim": {"claimName": name}}


def _labels(name: str, component: str) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "llmendpoint",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": MANAGER,
        MODEL_JOB_LABEL: name,
    }


def _named(namespace: str, name: str, component: str) -> Manifest:
    metadata = {"name": name, "namespace": namespace, "labels": _labels(name, component)}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata}


def _job(
    namespace: str,
    name: str,
    component: str,
    inputs: PodInputs,
    container: Manifest,
    volumes: Sequence[Manifest],
) -> Manifest:
    hopeless = {"containerName": CONTAINER, "operator": "In", "values": list(_HOPELESS)}
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "restartPolicy": "Never",
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "tmp", "emptyDir": {}}, *volumes],
    }
    resources = inputs.resources
    if resources.node_selector:
        spec["nodeSelector"] = dict(resources.node_selector)
    if resources.tolerations:
        spec["tolerations"] = [
            t.model_dump(mode="json", by_alias=True, exclude_none=True) for t in resources.tolerations
        ]
    job = _named(namespace, name, component)
    job["spec"] = {
        "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": hopeless}]},
        "template": {"metadata": {"labels": _labels(name, component)}, "spec": spec},
    }
    return job
