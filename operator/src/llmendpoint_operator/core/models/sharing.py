"""Which Job downloads an endpoint's files, where several endpoints want the same ones.

Endpoints whose Jobs would be equal share one. One that would run with another image, environment or on other nodes has
its own, under a name of its own: what is wrong with one endpoint's Job holds no other endpoint up. What any of them has
brought is there for all.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..pods.drift import first_difference
from ..pods.manifests import Manifest
from .jobs import POD_ANNOTATION
from .tasks import Stage, condition_of, read_task


def find_download(jobs: Sequence[Manifest], wanted: Manifest, digest: str) -> tuple[str, Manifest | None]:
    """`jobs` download the same files as `wanted`, whose name is that of the files; `digest` tells its pod. The name of
    the endpoint's Job, and the Job where it is there. One that goes without having brought anything takes no files along
    while another has brought them (retention.py)."""
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
    """Jobs of earlier operators say nothing of their pods, which are looked at."""
    said = (job["metadata"].get("annotations") or {}).get(POD_ANNOTATION)
    if said is not None:
        return bool(said == digest)
    pod = wanted["spec"]["template"]["spec"]
    return first_difference(pod, job["spec"]["template"]["spec"]) is None


def _found(job: Manifest) -> tuple[str, Manifest]:
    return str(job["metadata"]["name"]), job
