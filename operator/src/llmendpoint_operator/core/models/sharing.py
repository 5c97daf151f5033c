"""Which Job downloads an endpoint's files if several endpoints want the same files.

Endpoints whose Jobs would be equal share one. An endpoint whose Job would differ in image, environment or
nodes has a Job with a name of its own, so that a fault in one endpoint's Job delays no other endpoint. Files
that one of them has downloaded serve all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..pods.drift import first_difference
from ..pods.manifests import Manifest
from .jobs import POD_ANNOTATION
from .tasks import Stage, condition_of, read_task


def find_download(jobs: Sequence[Manifest], wanted: Manifest, digest: str) -> tuple[str, Manifest | None]:
    """The name of the endpoint's Job, and the Job if it exists. `jobs`: those that download the same files as
    `wanted`, which has the files' own name. `digest`: of the wanted pod. A Job that is being removed takes
    precedence if it is complete, because its files go with it; an incomplete one does not, if another Job has
    downloaded the files (retention.py)."""
    by_stage = {stage: [job for job in jobs if read_task(job, ()).stage is stage] for stage in Stage}
    leaving = by_stage[Stage.LEAVING]
    takes_files = [job for job in leaving if condition_of(job, "Complete")]
    for found in (takes_files, by_stage[Stage.DONE], leaving):
        if found:
            return _found(found[0])
    equal = next((job for job in jobs if _is_equal(job, wanted, digest)), None)
    if equal is not None:
        return _found(equal)
    name = str(wanted["metadata"]["name"])
    taken = any(job["metadata"]["name"] == name for job in jobs)
    return (f"{name}-{digest}" if taken else name), None


def _is_equal(job: Manifest, wanted: Manifest, digest: str) -> bool:
    """Whether the Job's pod is the wanted one. Jobs of earlier operators lack a digest; their pods are
    compared."""
    said = (job["metadata"].get("annotations") or {}).get(POD_ANNOTATION)
    if said is not None:
        return bool(said == digest)
    pod = wanted["spec"]["template"]["spec"]
    return first_difference(pod, job["spec"]["template"]["spec"]) is None


def _found(job: Manifest) -> tuple[str, Manifest]:
    return str(job["metadata"]["name"]), job
