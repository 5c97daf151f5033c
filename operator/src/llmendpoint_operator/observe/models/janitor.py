"""Deletes models that no revision has used for the retention. core/models/retention.py decides; for models on
nodes, core/models/nodes.py."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime

import structlog

from ...core.endpoint.ownership import Holder, holder_of_model_job
from ...core.endpoint.steps import Event
from ...core.models.files import Files
from ...core.models.jobs import REMOVE_SUFFIX, make_remove_job
from ...core.models.nodes import files_of, is_record, keeps_on_nodes, missing_records, next_record_act
from ...core.models.removals import (
    failed_event,
    failed_mark,
    given_up_event,
    has_failed,
    next_failure,
    why_failed,
)
from ...core.models.retention import (
    Act,
    Kept,
    Usage,
    files_name,
    find_usage,
    is_download,
    marking,
    next_act,
    siblings_of,
)
from ...core.names import Key
from ...errors import ApiError, Conflict, NotFound, NotOwned, Refused
from ...kube import resources
from ...kube.caches import Caches
from ...kube.children import Children
from ...kube.client import Json, KubeApi
from ...kube.events import EventWriter
from ...kube.store import endpoint_of, key_of

log = structlog.get_logger()


SWEEP_S = 30.0
LEAST_S = 1.0
"""Least seconds between two sweeps, whatever changes, because a sweep covers all endpoints."""


class Janitor:
    """`wanted`: the files that endpoints wait for now, by endpoint. `retention_s`: seconds to keep unused
    files."""

    def __init__(
        self,
        api: KubeApi,
        caches: Caches,
        events: EventWriter,
        wanted: Callable[[], dict[Key, Files]],
        retention_s: float,
    ) -> None:
        self._children = Children(api, caches)
        self._caches = caches
        self._events = events
        self._wanted = wanted
        self._retention_s = retention_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Sweep soon: an endpoint waits for a model, or one of the Jobs changed."""
        self._woken.set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        pause = min(SWEEP_S, max(1.0, self._retention_s / 2))
        while True:
            await self.sweep(datetime.now(UTC))
            await asyncio.sleep(LEAST_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)
            self._woken.clear()

    async def sweep(self, now: datetime) -> None:
        """Take one step for each Job that needs one. Refused steps are repeated in the next sweep."""
        await self._record_nodes()
        jobs = [job for job in self._caches.all(resources.JOBS) if _is_ours(job)]
        if not jobs:
            return
        used = self._usage()
        downloads = [self._kept(job, used) for job in jobs if not is_record(job)]
        for job in jobs:
            try:
                await self._tidy(job, used, downloads, now)
            except Exception:  # any: users may write into these Jobs; this one is skipped
                log.exception(
                    "model cache not understood", job="{namespace}/{name}".format_map(job["metadata"])
                )

    def _kept(self, job: Json, used: Usage) -> Kept:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        removal = self._caches.get(resources.JOBS, namespace, name + REMOVE_SUFFIX)
        return Kept(job, removal, (namespace, files_name(job)) in used)

    async def _tidy(self, job: Json, used: Usage, downloads: list[Kept], now: datetime) -> None:
        kept = self._kept(job, used)
        if is_record(job):
            act = next_record_act(
                job, (job["metadata"]["namespace"], files_of(job)) in used, now, self._retention_s
            )
        else:
            act = next_act(kept, now, self._retention_s, siblings_of(kept, downloads))
        if act is not None:
            await self._try(act, job, kept.removal, now)

    async def _try(self, act: Act, job: Json, removal: Json | None, now: datetime) -> None:
        name = "{namespace}/{name}".format_map(job["metadata"])
        try:
            await self._do(act, job, removal, now)
        except (Conflict, NotFound):
            pass  # another client was faster; the watch delivers its change
        except (ApiError, NotOwned) as error:
            log.warning("cache not tidied", job=name, act=act, error=str(error))

    async def _record_nodes(self) -> None:
        """Create the missing record of each node that holds a model."""
        kept = [r for r in self._caches.all(resources.CONTROLLER_REVISIONS) if keeps_on_nodes(r)]
        records = [(record, self._caches.revisions.of(record)) for record in kept]
        known = {key_of(job) for job in self._caches.all(resources.JOBS)} if records else set()
        for record, revision in records:
            if revision is None:
                continue
            namespace, endpoint = endpoint_of(record)
            pods = self._caches.children(resources.PODS, namespace, endpoint)
            for job in missing_records(namespace, revision, pods, known):
                known.add(key_of(job))
                try:
                    await self._children.put(job)
                except (ApiError, NotOwned) as error:
                    log.warning("cache not recorded", endpoint=f"{namespace}/{endpoint}", error=str(error))

    def _usage(self) -> Usage:
        records = self._caches.all(resources.CONTROLLER_REVISIONS)
        recorded = (
            (record["metadata"]["namespace"], self._caches.revisions.of(record)) for record in records
        )
        return find_usage(recorded, ((key[0], files.job_name) for key, files in self._wanted().items()))

    async def _do(self, act: Act, job: Json, removal: Json | None, now: datetime) -> None:
        namespace, name = job["metadata"]["namespace"], job["metadata"]["name"]
        log.info("model cache", job=f"{namespace}/{name}", act=act, **_about(job))
        if act is Act.REMOVE:
            await self._remove_files(job, now)
        elif act is Act.NOTE and removal is not None:
            await self._note(job, removal["metadata"]["uid"], self._why(removal), now)
        elif act is Act.DELETE:
            await self._children.remove(resources.JOBS, namespace, name, None)
            self._tell_given_up(job, removal)
        elif act is Act.DELETE_REMOVAL and removal is not None:
            await self._children.remove(resources.JOBS, namespace, removal["metadata"]["name"], None)
        else:
            await self._children.mark(resources.JOBS, job, marking(act, now))

    async def _remove_files(self, job: Json, now: datetime) -> None:
        """Create the Job that deletes the files. If it cannot be created, that counts as a failed attempt."""
        try:
            await self._children.put(make_remove_job(job))
        except (Refused, NotOwned) as error:
            await self._note(job, "", str(error), now)

    async def _note(self, job: Json, removal: str, said: str, now: datetime) -> None:
        failure = next_failure(job, removal, said, now)
        await self._children.mark(resources.JOBS, job, failed_mark(failure))
        self._tell(job, failed_event(job, failure))

    def _tell_given_up(self, job: Json, removal: Json | None) -> None:
        """Report that files may be left though their record is deleted."""
        last = job if is_record(job) else removal
        if last is not None and has_failed(last):
            self._tell(job, given_up_event(job, self._why(last)))

    def _tell(self, job: Json, event: Event) -> None:
        name = "{namespace}/{name}".format_map(job["metadata"])
        log.warning("model not removed", job=name, said=event.message, **_about(job))
        self._events.write_of_job(job, event)

    def _why(self, removal: Json) -> str:
        metadata = removal["metadata"]
        pods = self._caches.of_model_job(resources.PODS, metadata["namespace"], metadata["name"])
        return why_failed(removal, pods)


def _is_ours(job: Json) -> bool:
    """Whether the Job is the janitor's concern: a record of a cache's content, made by the operator."""
    return (is_download(job) or is_record(job)) and holder_of_model_job(job) is Holder.OURS


def _about(job: Json) -> dict[str, str]:
    annotations = job["metadata"].get("annotations") or {}
    return {
        field: annotations.get(f"llmendpoint.io/model-{field}", "unknown")
        for field in ("source", "revision", *(["node"] if is_record(job) else []))
    }
