"""What a revision waits for before it can be made: a resolved and, with a shared cache, downloaded model."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ...api import LLMEndpointSpec, ModelSpec
from ..endpoint.causes import Cause
from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Apply, Delete, Event, Step
from .files import Delivery, delivery, hub_of, model_files, resolved_by_job
from .identity import Identity
from .jobs import make_download_job, make_resolve_job
from .tasks import RETRY_SECONDS, Stage, Task


def model_awaited(model: ModelSpec, identity: Identity | None, task: Task | None) -> Cause | None:
    """The cause for which the revision waits for its model; None if it need not wait."""
    if identity is None:
        whom = "a Job asks" if resolved_by_job(model) else "asking the hub"
        return Cause("ModelResolving", f"{whom} which content {model.source} has", expected=True)
    if identity.problem:
        hint = (
            "; correct spec.model.source, or the chart's hub.endpoint" if not resolved_by_job(model) else ""
        )
        return Cause(identity.reason, f"{identity.problem}{hint}", identity.permanent)
    if task is None or task.stage is Stage.DONE:
        return None
    if delivery(model) is not Delivery.JOB and task.stage is not Stage.LEAVING:
        return None
    if task.cause is not None:
        return task.cause
    files = model_files(model, identity.commit)
    if task.stage is Stage.LEAVING:
        said = f"{files.source} on claim {files.claim} had no user; it is used again, or downloaded again if its removal has begun"
        return Cause("ModelDownloading", said, expected=True)
    said = f"{files.source} at {files.revision} is downloaded to claim {files.claim}: {task.progress} %"
    return Cause("ModelDownloading", said, expected=True)


def model_steps(snapshot: Snapshot, spec: LLMEndpointSpec, now: datetime) -> Iterator[Step]:
    """Create the missing Job, or delete a failed one when the next attempt is due."""
    awaited, runtime = snapshot.observed.awaited, snapshot.runtime
    if awaited is None or awaited.task is None or runtime is None or not runtime.model_image:
        return
    identity, task, owner = awaited.identity, awaited.task, snapshot.endpoint.owner
    if task.stage is Stage.ABSENT and identity is None:
        yield Apply(make_resolve_job(owner, awaited.revision, spec, runtime))
    elif task.stage is Stage.ABSENT and identity is not None:
        hub = hub_of(spec, runtime)
        job = make_download_job(owner.namespace, identity.commit, spec, runtime, hub, task.job)
        files = model_files(spec.model, identity.commit, hub)
        said = f"Job {job['metadata']['name']} downloads {files.source} at {files.revision} to claim {files.claim}"
        yield Apply(job, Event("ModelDownloadStarted", said))
    elif identity is not None and identity.commit and retry_in(task, now) == 0:
        hub = hub_of(spec, runtime)
        name = task.job or model_files(spec.model, identity.commit, hub).job_name
        event = Event("ModelDownloadRetried", f"Job {name} failed and is made again", "Warning")
        yield Delete("batch/v1", "Job", owner.namespace, name, event, shared=True)


def retry_in(task: Task | None, now: datetime) -> float | None:
    """Seconds until a failed Job is made anew; None if it has not failed."""
    if task is None or task.stage is not Stage.FAILED or task.ended is None:
        return None
    return max(0.0, RETRY_SECONDS - (now - task.ended).total_seconds())
