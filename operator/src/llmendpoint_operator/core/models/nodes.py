"""Which nodes hold a model of `cache.scope: Node`, and how it is deleted there.

Only pods on a node can see its volume. So the record of each node with a pod of the revision is a suspended
Job that would delete the model there. It is marked and unmarked as in retention.py. At the end the Job is
released and runs on that node only. A Job that cannot run, because the node and its volume are gone, is given
up after REMOVAL_SECONDS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from ..names import MODEL_JOB_LABEL, REVISION_LABEL, Key
from ..pods.manifests import Manifest
from ..pods.revision import Revision
from .files import Delivery, Files, delivery, files_of_revision, revision_hub, short_hash
from .jobs import FILES_ANNOTATION, POD_ANNOTATION, make_download_job, make_remove_job
from .retention import Act, next_mark
from .tasks import REMOVING_ANNOTATION, condition_of

KEPT = "model-kept"
"""The component label of these Jobs."""
NODE_ANNOTATION = "llmendpoint.io/model-node"


def keeps_on_nodes(record: Manifest) -> bool:
    """Whether a ControllerRevision's model is kept on nodes; a quick check, because most are not."""
    model = (record.get("data") or {}).get("inputs", {}).get("model", {})
    return bool((model.get("cache") or {}).get("scope") == "Node")


def is_record(job: Manifest) -> bool:
    """Whether the Job is such a record."""
    return bool(job["metadata"].get("labels", {}).get("app.kubernetes.io/component") == KEPT)


def files_of(job: Manifest) -> str:
    """The name of the files that the Job is about, by which users of the model are found."""
    return str((job["metadata"].get("annotations") or {}).get(FILES_ANNOTATION, ""))


def missing_records(
    namespace: str, revision: Revision, pods: Iterable[Manifest], known: set[Key]
) -> Iterator[Manifest]:
    """Missing records of nodes that run pods of this revision. `known`: existing Jobs by namespace and
    name."""
    if not revision.commit or delivery(revision.inputs.model) is not Delivery.POD:
        return
    if revision.runtime.model_image is None:  # then none of its pods has downloaded a model
        return
    files = files_of_revision(revision)
    own = (pod for pod in pods if pod["metadata"].get("labels", {}).get(REVISION_LABEL) == revision.hash)
    nodes = {str(node) for pod in own if (node := pod.get("spec", {}).get("nodeName"))}
    for node in sorted(nodes):
        if files.claim is not None and (namespace, record_name(files, node)) not in known:
            yield make_record(namespace, revision, files, node)


def record_name(files: Files, node: str) -> str:
    """Name of the Job for one model on one node."""
    return f"llm-model-{short_hash(files.folder, files.claim or '', node)}-kept"


def make_record(namespace: str, revision: Revision, files: Files, node: str) -> Manifest:
    """The record, suspended until the model is deleted. It tolerates every taint, as the engine's pods
    may."""
    download = make_download_job(
        namespace, revision.commit, revision.inputs, revision.runtime, revision_hub(revision)
    )
    job, name = make_remove_job(download), record_name(files, node)
    labels = {"app.kubernetes.io/component": KEPT, MODEL_JOB_LABEL: name}
    job["metadata"]["name"] = name
    job["metadata"]["labels"] |= labels
    about = {k: v for k, v in download["metadata"]["annotations"].items() if k != POD_ANNOTATION}
    job["metadata"]["annotations"] = {
        **about,
        FILES_ANNOTATION: files.job_name,
        NODE_ANNOTATION: node,
    }
    spec = job["spec"]
    del spec["ttlSecondsAfterFinished"]
    spec["suspend"] = True
    spec["template"]["metadata"]["labels"] |= labels
    pod = spec["template"]["spec"]
    pod.pop("nodeSelector", None)
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}
    pod |= {"tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": required}}
    return job


def next_record_act(job: Manifest, used: bool, now: datetime, retention: float) -> Act | None:
    """The next step, as in retention.py; `retention` in seconds."""
    if "deletionTimestamp" in job["metadata"]:
        return None
    if REMOVING_ANNOTATION in (job["metadata"].get("annotations") or {}):
        return Act.DELETE if ended(job) else None
    return next_mark(job, used, now, retention, Act.RELEASE)


def ended(job: Manifest) -> str:
    """Complete or Failed; empty while the Job has not ended."""
    return next((kind for kind in ("Complete", "Failed") if condition_of(job, kind)), "")
