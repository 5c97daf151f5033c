"""What is known of the model that an endpoint's next revision waits for: from the hub, from Jobs and from their pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from ...api import LLMEndpointSpec, LLMRuntimeSpec
from ...core.endpoint.ownership import Holder, holder_of, holder_of_model_job
from ...core.endpoint.snapshot import Snapshot
from ...core.models.files import (
    Delivery,
    Files,
    delivery,
    hub_of,
    model_files,
    resolve_job_name,
    resolved_by_job,
)
from ...core.models.identity import Identity, split_hub
from ...core.models.jobs import PROGRESS_PORT, REMOVE_SUFFIX, make_download_job, pod_digest
from ...core.models.nodes import files_of, is_record
from ...core.models.removals import removal_cause
from ...core.models.retention import files_name, is_download
from ...core.models.sharing import find_download
from ...core.models.tasks import Stage, Task, identity_of, read_task
from ...core.names import Key
from ...core.pods.builders import Owner
from ...core.rollout.target import unresolved
from ...errors import Unanswered
from ...kube import resources
from ...kube.caches import Caches
from ..slots import Slots
from ..targets import base_url
from ..wire import Wire
from .hub import Hub, Question

log = structlog.get_logger()


POLL_S = 3.0
ANSWER_LIMIT_S = 2.0
AT_ONCE = 32
OF_A_NAMESPACE = 8
STEP = 10
"""Percent: the status is written at most ten times in a download."""


class Models:
    """`wanted` are the files that somebody waits for, by endpoint. An answer of a Job stays here until the endpoint asks
    another question, for its Job goes before a long download is done."""

    def __init__(self, caches: Caches, hub: Hub, wire: Wire, wake: Callable[[Key], None]) -> None:
        self._caches = caches
        self._hub = hub
        self._progress = _Progress(wire, wake)
        self._answers: dict[Key, tuple[str, Identity]] = {}
        self.wanted: dict[Key, Files] = {}
        self.on_wanted: Callable[[], None] = lambda: None
        """Called when somebody begins to wait for files."""

    def look(self, key: Key, snapshot: Snapshot) -> Snapshot:
        """The snapshot with what is known now; sees to it that the rest is being found out."""
        waiting = unresolved(snapshot)
        if waiting is None:
            self.forget(key)
            return snapshot
        hash_, spec = waiting
        waited_for = self.wanted.pop(key, None)
        identity, task = self._identity(key, hash_, snapshot)
        hub = hub_of(spec, snapshot.runtime) if snapshot.runtime else ""
        if identity is not None and identity.commit and delivery(spec.model) is Delivery.JOB:
            files = self._want(key, model_files(spec.model, identity.commit, hub), waited_for)
            task = self._download(key, files, spec, snapshot.runtime)
        elif identity is not None and identity.commit and spec.model.cache is not None:
            files = self._want(key, model_files(spec.model, identity.commit, hub), waited_for)
            if self._leaves_nodes(key[0], files):
                task = Task(Stage.LEAVING)
        self._progress.follow(key, task.address if task else None)
        resolved = {hash_: identity} if identity is not None else {}
        return replace(snapshot, resolved=resolved, task=task)

    def _want(self, key: Key, files: Files, waited_for: Files | None) -> Files:
        self.wanted[key] = files
        if files != waited_for:
            self.on_wanted()
        return files

    def _leaves_nodes(self, namespace: str, files: Files) -> bool:
        """Whether the model is marked to leave a node, or on its way: who relies on it waits until it is not."""
        return any(
            is_record(job)
            and job["metadata"]["namespace"] == namespace
            and files_of(job) == files.job_name
            and read_task(job, ()).stage is Stage.LEAVING
            for job in self._caches.all(resources.JOBS)
        )

    def forget(self, key: Key) -> None:
        """The endpoint waits for nothing any more."""
        self._hub.forget(key)
        self._progress.follow(key, None)
        self._answers.pop(key, None)
        self.wanted.pop(key, None)

    def _identity(self, key: Key, hash_: str, snapshot: Snapshot) -> tuple[Identity | None, Task | None]:
        assert snapshot.endpoint.spec is not None
        model = snapshot.endpoint.spec.model
        hub = split_hub(model.source)
        if hub is not None and not resolved_by_job(model):
            return self._hub.look(key, Question(hash_, hub)), None
        self._hub.forget(key)
        question, known = self._answers.get(key, ("", Identity()))
        if question == hash_:
            return known, None
        task = self._resolve(snapshot.endpoint.owner, resolve_job_name(snapshot.endpoint.uid, hash_))
        identity = identity_of(task)
        if identity is not None and identity.commit:
            self._answers[key] = (hash_, identity)
            log.info("model resolved", endpoint="/".join(key), source=model.source, revision=identity.commit)
        return identity, task

    def _download(
        self, key: Key, files: Files, spec: LLMEndpointSpec, runtime: LLMRuntimeSpec | None
    ) -> Task:
        """Of the Job that this endpoint shares or has alone."""
        jobs = [job for job in self._downloads(key[0]) if files_name(job) == files.job_name]
        name, live = files.job_name, None
        if runtime is not None and runtime.model_image:
            wanted = make_download_job(key[0], files.revision, spec, runtime, files.hub)
            name, live = find_download(jobs, wanted, pod_digest(wanted))
        pods = self._caches.of_model_job(resources.PODS, key[0], name)
        task = replace(read_task(live, pods), job=name)
        if task.stage is Stage.ABSENT and self._job(key[0], files.job_name + REMOVE_SUFFIX) is not None:
            return Task(Stage.LEAVING)
        if task.stage is Stage.LEAVING and live is not None:
            return replace(task, cause=removal_cause(live))
        if task.stage is Stage.RUNNING:
            return replace(task, progress=self._progress.of(key))
        return task

    def _downloads(self, namespace: str) -> list[dict[str, Any]]:
        return [
            job
            for job in self._caches.all(resources.JOBS)
            if job["metadata"]["namespace"] == namespace
            and is_download(job)
            and holder_of_model_job(job) is Holder.OURS
        ]

    def _resolve(self, owner: Owner, name: str) -> Task:
        """Of the Job that asks what the source is, which is the endpoint's own."""
        job = self._job(owner.namespace, name)
        if job is not None and holder_of(job, owner) is not Holder.OURS:
            return Task()
        return read_task(job, self._caches.of_model_job(resources.PODS, owner.namespace, name))

    def _job(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self._caches.get(resources.JOBS, namespace, name)


class _Progress:
    """Asks the pods that download how far they are, while somebody looks."""

    def __init__(self, wire: Wire, wake: Callable[[Key], None]) -> None:
        self._wire = wire
        self._wake = wake
        self._slots = Slots(AT_ONCE, OF_A_NAMESPACE, spare=OF_A_NAMESPACE)
        self._followed: dict[Key, tuple[str, asyncio.Task[None]]] = {}
        self._steps: dict[Key, int] = {}

    def of(self, key: Key) -> int:
        """Percent, in whole steps."""
        return self._steps.get(key, 0)

    def follow(self, key: Key, address: str | None) -> None:
        """Begin, go on, or (without an address) end."""
        followed = self._followed.get(key)
        if followed is not None and followed[0] == address:
            return
        if followed is not None:
            followed[1].cancel()
            del self._followed[key]
        self._steps.pop(key, None)
        if address is not None:
            self._followed[key] = (address, asyncio.create_task(self._ask(key, address), name="progress"))

    async def _ask(self, key: Key, address: str) -> None:
        while True:
            try:
                url = f"{base_url(address, PROGRESS_PORT)}/progress"
                async with self._slots.held(key[0]):
                    found = await self._wire.json("progress", url, ANSWER_LIMIT_S)
                step = percent(found)
            except Unanswered:
                step = None
            if step is not None and step != self._steps.get(key, 0):
                self._steps[key] = step
                self._wake(key)
            await asyncio.sleep(POLL_S)


def percent(found: Any) -> int | None:
    """Of what `/progress` answers, in whole steps, below 100 until the Job itself says that it is done."""
    try:
        done, total = int(found["bytes"]), int(found["total"])
    except (KeyError, TypeError, ValueError):
        return None
    if total <= 0:
        return 0
    return max(0, min(100 * done // total // STEP * STEP, 100 - STEP))
