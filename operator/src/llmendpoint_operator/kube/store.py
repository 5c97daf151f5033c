"""A cache of one kind, kept up to date by list and watch.

A completed list replaces the cache and reports objects that are gone, so no deleted object remains after a
lost watch. The operator's own writes are stored at once, so that a reconciliation sees what it wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import structlog

from ..core.names import ENDPOINT_LABEL, MODEL_JOB_LABEL, Key
from ..core.pauses import growing_pause
from ..errors import ApiError, Gone, NotFound, api_error
from .client import Json, KubeApi
from .resources import Resource
from .trimming import trim

log = structlog.get_logger()


WATCH_SECONDS = 60
RESYNC_SECONDS = 600
FIRST_RETRY_S, LAST_RETRY_S = 0.1, 10.0
MISSING_S = 10.0
"""Seconds between attempts to list a kind that the cluster lacks."""


class Store:
    """Objects by namespace and name, and by their endpoint."""

    def __init__(self, on_change: Callable[[Json], None]) -> None:
        self._on_change = on_change
        self._objects: dict[Key, Json] = {}
        self._by_endpoint: dict[Key, set[Key]] = defaultdict(set)
        self._seen = 0
        self._own: set[Key] = set()
        """Objects that the operator wrote and that no list or watch event has confirmed since."""

    def get(self, namespace: str, name: str) -> Json | None:
        """One object, or None."""
        return self._objects.get((namespace, name))

    def of_endpoint(self, namespace: str, endpoint: str) -> list[Json]:
        """An endpoint's children of this kind, sorted by name."""
        return [self._objects[key] for key in sorted(self._by_endpoint.get((namespace, endpoint), ()))]

    def __iter__(self) -> Iterator[Json]:
        return iter(list(self._objects.values()))

    def __len__(self) -> int:
        return len(self._objects)

    def replace(self, items: list[Json], version: str) -> None:
        """Replace the contents by a completed list, and report each object that changed or is gone. The
        operator's own writes that are newer than the list are kept: they were made meanwhile."""
        listed = int(version)
        fresh = {key_of(item): item for item in items}
        for key, old in list(self._objects.items()):
            if key in self._own and _version(old) > listed:
                fresh.pop(key, None)
            elif key not in fresh or fresh[key]["metadata"]["uid"] != old["metadata"]["uid"]:
                self._remove(key)
                self._on_change(old)
        for key, item in fresh.items():
            if _version(self._objects.get(key)) != _version(item):
                self._put(key, item)
                self._on_change(item)
        self._seen = listed
        self._own.clear()

    def clear(self) -> None:
        """Drop all objects, because the cluster no longer has the kind."""
        for key, old in list(self._objects.items()):
            self._remove(key)
            self._on_change(old)
        self._seen = 0

    def event(self, kind: str, item: Json) -> None:
        """Process one watch event."""
        self._seen = max(self._seen, _version(item))
        if kind == "BOOKMARK":
            return
        key = key_of(item)
        known = self._objects.get(key)
        if _version(item) >= _version(known):
            self._own.discard(key)
        if kind == "DELETED":
            if known is not None and known["metadata"]["uid"] == item["metadata"]["uid"]:
                self._remove(key)
        elif _version(item) > _version(known):
            self._put(key, item)
        else:
            return  # the operator's own write, already stored
        self._on_change(item)

    def remember(self, item: Json) -> Json:
        """Store the answer to a write, unless the watch is past it already (the object may be deleted by
        now). Returns the trimmed object."""
        key, kept = key_of(item), trim(item)
        if _version(item) > max(self._seen, _version(self._objects.get(key))):
            self._put(key, kept)
            self._own.add(key)
        return kept

    def _put(self, key: Key, item: Json) -> None:
        self._remove(key)
        self._objects[key] = item
        self._by_endpoint[endpoint_of(item)].add(key)

    def _remove(self, key: Key) -> None:
        old = self._objects.pop(key, None)
        if old is None:
            return
        siblings = self._by_endpoint[endpoint_of(old)]
        siblings.discard(key)
        if not siblings:
            del self._by_endpoint[endpoint_of(old)]


class Informer:
    """Keeps one Store up to date. `synced` is set after the first list."""

    def __init__(
        self,
        api: KubeApi,
        resource: Resource,
        on_change: Callable[[Json], None],
        namespace: str | None = None,
        selector: str = "",
    ) -> None:
        self.resource = resource
        self.store = Store(on_change)
        self.synced = asyncio.Event()
        self.missing = False
        """Whether the cluster lacks the kind; only for optional kinds."""
        self._api = api
        self._namespace = namespace if resource.namespaced else None
        self._selector = selector
        self._heard = time.monotonic()
        self._version = ""

    @property
    def staleness(self) -> float:
        """Seconds since the API server was last heard."""
        return time.monotonic() - self._heard

    async def run(self) -> None:
        """List and watch until cancelled."""
        failures = 0
        listed = 0.0
        while True:
            try:
                if not self._version or time.monotonic() - listed > RESYNC_SECONDS:
                    await self._list()
                    listed = time.monotonic()
                await self._watch()
                failures = 0
            except Gone:
                self._version = ""
            except (TimeoutError, ApiError, aiohttp.ClientError, ValueError) as error:
                if self.resource.optional and isinstance(error, NotFound):
                    await self._without_it()
                    continue
                log.warning("watch interrupted", resource=self.resource.plural, error=str(error))
                failures += 1
                await asyncio.sleep(growing_pause(FIRST_RETRY_S, failures, LAST_RETRY_S))

    async def _without_it(self) -> None:
        """The cluster lacks the kind: empty the store, and try again later, because it may be installed."""
        self.missing, self._version = True, ""
        self.store.clear()
        self._heard = time.monotonic()
        self.synced.set()
        await asyncio.sleep(MISSING_S)

    async def _list(self) -> None:
        found = await self._api.list(self.resource, self._namespace, self._selector)
        kind = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        self._version = str(found["metadata"]["resourceVersion"])
        self.store.replace([trim({**kind, **item}) for item in found.get("items") or ()], self._version)
        self._heard = time.monotonic()
        self.missing = False
        self.synced.set()

    async def _watch(self) -> None:
        watch = self._api.watch(self.resource, self._namespace, self._selector, self._version, WATCH_SECONDS)
        async for event in watch:
            self._heard = time.monotonic()
            item = event["object"]
            if event["type"] == "ERROR":
                raise api_error(
                    int(item.get("code", 0)), str(item.get("message", "")), f"watch {self.resource.plural}"
                )
            self.store.event(event["type"], trim(item))
            self._version = str(item["metadata"]["resourceVersion"])
        self._heard = time.monotonic()


def key_of(item: Json) -> Key:
    """Namespace and name of an object."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def dig(item: Json, *path: str) -> Any:
    """The value at a path; None if a part of the path is missing or no object. An object may come from
    another version of the CRD, and must not end the watch."""
    found: Any = item
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def endpoint_of(item: Json) -> Key:
    """The endpoint that a child belongs to, by label; an endpoint's own key for itself. Objects of a model's
    Job get a name that no endpoint can have."""
    namespace, name = key_of(item)
    labels = item["metadata"].get("labels", {})
    if MODEL_JOB_LABEL in labels:
        return model_job_key(namespace, labels[MODEL_JOB_LABEL])
    return namespace, labels.get(ENDPOINT_LABEL, name)


def model_job_key(namespace: str, job: str) -> Key:
    """The key under which a model's Job and its pods are kept."""
    return namespace, f"model-job/{job}"


def _version(item: Json | None) -> int:
    return int(item["metadata"].get("resourceVersion", 0)) if item else 0
