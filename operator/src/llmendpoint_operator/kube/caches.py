"""One informer per kind, and which endpoints a change concerns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from ..core.endpoint.served import ServedNames, claimed_names
from ..core.names import ENDPOINT_LABEL, MANAGER, MODEL_JOB_LABEL, Key
from . import resources
from .client import Json, KubeApi
from .parsed import ParsedRevisions
from .resources import Resource
from .store import Informer, dig, endpoint_of, key_of, model_job_key

Wake = Callable[[Key], None]

MANAGED = f"app.kubernetes.io/managed-by={MANAGER}"


class Caches:
    """The caches. They call `wake((namespace, name))` for each endpoint that a change concerns."""

    def __init__(self, api: KubeApi, wake: Wake, namespace: str | None) -> None:
        self._wake = wake
        self.names = ServedNames()
        self.revisions = ParsedRevisions()
        self.on_model_job: Callable[[], None] = lambda: None
        """Called when a Job that resolves, downloads or deletes a model changes, or a pod of such a Job."""
        watched = ((kind, MANAGED) for kind in (*resources.CHILDREN, resources.PODS))
        self.informers: dict[Resource, Informer] = {
            kind: Informer(api, kind, self._child_changed, namespace, selector) for kind, selector in watched
        }
        records = resources.CONTROLLER_REVISIONS
        self.informers[records] = Informer(api, records, self._record_changed, namespace, MANAGED)
        self.informers[resources.ENDPOINTS] = Informer(
            api, resources.ENDPOINTS, self._endpoint_changed, namespace
        )
        self.informers[resources.RUNTIMES] = Informer(api, resources.RUNTIMES, self._runtime_changed)

    def get(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """One object, or None."""
        return self.informers[resource].store.get(namespace, name)

    def children(self, resource: Resource, namespace: str, endpoint: str) -> list[Json]:
        """An endpoint's children of one kind."""
        return self.informers[resource].store.of_endpoint(namespace, endpoint)

    def of_model_job(self, resource: Resource, namespace: str, job: str) -> list[Json]:
        """The Job, or the pods, of a Job that resolves, downloads or deletes a model."""
        return self.children(resource, *model_job_key(namespace, job))

    def all(self, resource: Resource) -> Iterator[Json]:
        """All objects of a kind."""
        return iter(self.informers[resource].store)

    def remember(self, resource: Resource, item: Json) -> Json:
        """Store the API server's answer to a write of the operator. Returns the stored form."""
        return self.informers[resource].store.remember(item)

    def missing(self, resource: Resource) -> bool:
        """Whether the cluster lacks the kind."""
        return self.informers[resource].missing

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed once."""
        return all(informer.synced.is_set() for informer in self.informers.values())

    @property
    def staleness(self) -> float:
        """Seconds since the watch that has been silent longest last received something."""
        return max(informer.staleness for informer in self.informers.values())

    async def run(self) -> None:
        """Keep all caches up to date until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())

    async def wait_synced(self) -> None:
        """Wait until every kind has been listed."""
        for informer in self.informers.values():
            await informer.synced.wait()

    def _endpoint_changed(self, item: Json) -> None:
        key = key_of(item)
        for other in self._claims(key):
            self._wake(other)
        self._wake(key)

    def _claims(self, key: Key) -> set[Key]:
        """Update the endpoint's claims to model names. Returns the other endpoints that this affects."""
        there = self.get(resources.ENDPOINTS, *key)
        if there is None:
            return self.names.drop(key)
        return self.names.claim(
            key, str(there["metadata"].get("creationTimestamp", "")), claimed_names(there)
        )

    def _record_changed(self, item: Json) -> None:
        self.revisions.forget(item)
        self._child_changed(item)

    def _child_changed(self, item: Json) -> None:
        """Wake the endpoint that the label names, and the owner: a user may have changed the label."""
        labels, references = item["metadata"].get("labels", {}), item["metadata"].get("ownerReferences") or ()
        owners = (r["name"] for r in references if r.get("kind") == resources.ENDPOINTS.kind)
        keys = {(key_of(item)[0], name) for name in owners}
        if ENDPOINT_LABEL in labels:
            keys.add(endpoint_of(item))
        elif MODEL_JOB_LABEL in labels:
            self._model_job_changed(item)
        for key in keys:
            self._wake(key)

    def _model_job_changed(self, item: Json) -> None:
        """Wake every endpoint of the namespace that may wait for such a Job. These Jobs change seldom."""
        self.on_model_job()
        for endpoint in self.informers[resources.ENDPOINTS].store:
            source = str(dig(endpoint, "spec", "model", "source") or "")
            if key_of(endpoint)[0] == key_of(item)[0] and source.startswith(("hf://", "s3://")):
                self._wake(key_of(endpoint))

    def _runtime_changed(self, item: Json) -> None:
        """Wake the endpoints that name the runtime in their spec or in a kept (maybe active) revision."""
        for endpoint in self.informers[resources.ENDPOINTS].store:
            key = key_of(endpoint)
            named = {dig(endpoint, "spec", "runtime", "name")}
            for record in self.children(resources.CONTROLLER_REVISIONS, *key):
                named.add(dig(record, "data", "inputs", "runtime", "name"))
            if item["metadata"]["name"] in named:
                self._wake(key)
