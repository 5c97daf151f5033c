"""One informer for each kind, and which endpoint a change concerns."""

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
    """Calls `wake(namespace, name)` for each endpoint that a change concerns."""

    def __init__(self, api: KubeApi, wake: Wake, namespace: str | None) -> None:
        self._wake = wake
        self.names = ServedNames()
        self.revisions = ParsedRevisions()
        self.on_model_job: Callable[[], None] = lambda: None
        """Called when a Job that resolves, downloads or deletes a model changes, or one of its pods."""
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
        """One object."""
        return self.informers[resource].store.get(namespace, name)

    def children(self, resource: Resource, namespace: str, endpoint: str) -> list[Json]:
        """An endpoint's children of one kind."""
        return self.informers[resource].store.of_endpoint(namespace, endpoint)

    def of_model_job(self, resource: Resource, namespace: str, job: str) -> list[Json]:
        """What belongs to a Job that resolves, downloads or deletes a model."""
        return self.children(resource, *model_job_key(namespace, job))

    def all(self, resource: Resource) -> Iterator[Json]:
        """Everything of a kind."""
        return iter(self.informers[resource].store)

    def remember(self, resource: Resource, item: Json) -> Json:
        """The answer to our own write, as it is kept."""
        return self.informers[resource].store.remember(item)

    def missing(self, resource: Resource) -> bool:
        """Whether the cluster does not know the kind."""
        return self.informers[resource].missing

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed once."""
        return all(informer.synced.is_set() for informer in self.informers.values())

    @property
    def staleness(self) -> float:
        """Seconds since the least recently heard watch said something."""
        return max(informer.staleness for informer in self.informers.values())

    async def run(self) -> None:
        """Keep all of them until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self.informers.values():
                group.create_task(informer.run())

    async def wait_synced(self) -> None:
        """Until every kind has been listed."""
        for informer in self.informers.values():
            await informer.synced.wait()

    def _endpoint_changed(self, item: Json) -> None:
        key = key_of(item)
        for other in self._claims(key):
            self._wake(other)
        self._wake(key)

    def _claims(self, key: Key) -> set[Key]:
        """Take up the names that the endpoint asks for now; the others for whom that changes something."""
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
        """Concerns the endpoint that its label names, and the one that owns it: a hand may have changed the label."""
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
        """Who of its namespace may wait for it is cheaper to ask than to know: such Jobs change a few times each."""
        self.on_model_job()
        for endpoint in self.informers[resources.ENDPOINTS].store:
            source = str(dig(endpoint, "spec", "model", "source") or "")
            if key_of(endpoint)[0] == key_of(item)[0] and source.startswith(("hf://", "s3://")):
                self._wake(key_of(endpoint))

    def _runtime_changed(self, item: Json) -> None:
        """Concerns the endpoints whose spec names it, and those that keep a revision with it: that may be the active one."""
        for endpoint in self.informers[resources.ENDPOINTS].store:
            key = key_of(endpoint)
            named = {dig(endpoint, "spec", "runtime", "name")}
            for record in self.children(resources.CONTROLLER_REVISIONS, *key):
                named.add(dig(record, "data", "inputs", "runtime", "name"))
            if item["metadata"]["name"] in named:
                self._wake(key)
