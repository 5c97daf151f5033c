"""What is known of the model that an endpoint's next revision waits for, from the hub, Jobs and pods."""

from __future__ import annotations

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
from ...core.models.jobs import REMOVE_SUFFIX, make_download_job, pod_digest
from ...core.models.nodes import files_of, is_record
from ...core.models.removals import removal_cause
from ...core.models.retention import files_name, is_download
from ...core.models.sharing import find_download
from ...core.models.tasks import Awaited, Stage, Task, identity_of, read_task
from ...core.names import Key
from ...core.pods.manifests import Owner
from ...core.rollout.target import unresolved
from ...kube import resources
from ...kube.caches import Caches
from ..wire import Wire
from .hub import Hub, Question
from .progress import Progress

log = structlog.get_logger()


class Models:
    """`wanted`: the files that endpoints wait for, by endpoint. The answer of a resolving Job is kept here
    until the endpoint asks something else, because the Job is deleted before a long download ends."""

    def __init__(self, caches: Caches, hub: Hub, wire: Wire, wake: Callable[[Key], None]) -> None:
        self._caches = caches
        self._hub = hub
        self._progress = Progress(wire, wake)
        self._answers: dict[Key, tuple[str, Identity]] = {}
        self._known: dict[Key, Awaited] = {}
        self.wanted: dict[Key, Files] = {}
        self.on_wanted: Callable[[], None] = lambda: None
        """Called when an endpoint begins to wait for files."""

    def of(self, key: Key) -> Awaited | None:
        """What was known at the last update; None if the endpoint waits for no model."""
        return self._known.get(key)

    def update(self, snapshot: Snapshot) -> None:
        """Collect what is known of the model that this endpoint waits for, and start to find out the rest."""
        key, waiting = (snapshot.endpoint.namespace, snapshot.endpoint.name), unresolved(snapshot)
        if waiting is None:
            self.forget(key)
            return
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
        self._known[key] = Awaited(hash_, identity, task)

    def _want(self, key: Key, files: Files, waited_for: Files | None) -> Files:
        self.wanted[key] = files
        if files != waited_for:
            self.on_wanted()
        return files

    def _leaves_nodes(self, namespace: str, files: Files) -> bool:
        """Whether the model is marked for deletion on a node, or being deleted. An endpoint that wants it
        waits until the mark or the files are gone."""
        return any(
            is_record(job)
            and job["metadata"]["namespace"] == namespace
            and files_of(job) == files.job_name
            and read_task(job, ()).stage is Stage.LEAVING
            for job in self._caches.all(resources.JOBS)
        )

    def forget(self, key: Key) -> None:
        """Drop an endpoint that waits for no model any more."""
        self._hub.forget(key)
        self._progress.follow(key, None)
        self._answers.pop(key, None)
        self._known.pop(key, None)
        self.wanted.pop(key, None)

    def _identity(self, key: Key, hash_: str, snapshot: Snapshot) -> tuple[Identity | None, Task | None]:
        assert snapshot.endpoint.spec is not None
        model = snapshot.endpoint.spec.model
        hub = split_hub(model.source)
        if hub is not None and not resolved_by_job(model):
            self._hub.ask(key, Question(hash_, hub))
            return self._hub.of(key), None
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
        """The state of the download Job that this endpoint uses, shared or alone."""
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
        """The state of the resolving Job, which the endpoint owns."""
        job = self._job(owner.namespace, name)
        if job is not None and holder_of(job, owner) is not Holder.OURS:
            return Task()
        return read_task(job, self._caches.of_model_job(resources.PODS, owner.namespace, name))

    def _job(self, namespace: str, name: str) -> dict[str, Any] | None:
        return self._caches.get(resources.JOBS, namespace, name)
