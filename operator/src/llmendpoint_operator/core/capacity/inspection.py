"""The one-shot Job that reads a model on a PersistentVolumeClaim: its config, and the headers of its weight
files.

It mounts the claim read-only, if possible on a node with the endpoint's pods (a ReadWriteOnce volume is on
one node). Its termination message has the result. It is deleted once the result is in the status. Its pod has
no revision label, so no Service selects it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Apply, Delete, Step
from ..names import ENDPOINT_LABEL, USER, labels
from ..pods.manifests import Manifest, Owner, child_metadata
from ..pods.revision import Revision
from .findings import SECONDS, OnClaim, on_claim, recorded

INSPECTS_LABEL = "llmendpoint.io/inspects"
"""The revision whose model the Job reads."""


def inspection_name(endpoint: str) -> str:
    """Name of the Job. An endpoint has one at a time."""
    return f"{endpoint}-inspect"


def job_steps(snapshot: Snapshot, target: Revision | None) -> Iterator[Step]:
    """Create the Job while it is needed. Delete it once its result is recorded, or if the target changed."""
    endpoint, live = snapshot.endpoint, snapshot.observed.capacity.job
    wanted = _wanted(snapshot, target)
    if live is not None and (wanted is None or _inspects(live) != _inspects(wanted)):
        if "deletionTimestamp" not in live["metadata"]:
            yield Delete("batch/v1", "Job", endpoint.namespace, inspection_name(endpoint.name))
    elif live is None and wanted is not None:
        yield Apply(wanted, optional=True)


def _wanted(snapshot: Snapshot, target: Revision | None) -> Manifest | None:
    image, refused = snapshot.observed.capacity.image, snapshot.observed.capacity.refused
    if target is None or image is None or target.inputs.resources.accelerator is None:
        return None
    where = on_claim(target)
    known = recorded(snapshot.endpoint.status, target.hash) is not None
    if where is None or known or refused:
        return None
    return make_job(snapshot.endpoint.owner, target, where, image)


def _inspects(job: Manifest) -> str:
    return str(job["metadata"].get("labels", {}).get(INSPECTS_LABEL))


def make_job(owner: Owner, revision: Revision, where: OnClaim, image: str) -> Manifest:
    """The manifest of the Job."""
    metadata = child_metadata(owner, inspection_name(owner.name), None)
    marks = {**labels(owner.name), "app.kubernetes.io/component": "inspection", INSPECTS_LABEL: revision.hash}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**metadata, "labels": marks},
        "spec": {
            "backoffLimit": 1,
            "activeDeadlineSeconds": SECONDS,
            "ttlSecondsAfterFinished": 3600,
            "template": {"metadata": {"labels": marks}, "spec": _pod(owner, where, image)},
        },
    }


def _pod(owner: Owner, where: OnClaim, image: str) -> Manifest:
    beside = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {ENDPOINT_LABEL: owner.name}},
    }
    return {
        "restartPolicy": "Never",
        "serviceAccountName": owner.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "podAffinityTerm": beside}
                ]
            }
        },
        "containers": [_container(where, image)],
        "volumes": [
            {"name": "model-weights", "persistentVolumeClaim": {"claimName": where.claim, "readOnly": True}}
        ],
    }


def _container(where: OnClaim, image: str) -> Manifest:
    return {
        "name": "inspect",
        "image": image,
        "command": ["llmendpoint-inspect"],
        "args": [where.folder, "--termination-log=/dev/termination-log"],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [{"name": "model-weights", "mountPath": where.mounted, "readOnly": True}],
    }
