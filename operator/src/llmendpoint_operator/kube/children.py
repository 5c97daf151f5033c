"""All writes of children pass here. Objects that the operator does not own are neither overwritten nor
deleted.

The caches hold labelled objects only, so an object that they lack is created, never applied. If its name is
taken, the API server answers 409, and the existing object is read once. A change carries the uid of the
object that the decision was about.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.endpoint.ownership import Holder, holder, owner_in
from ..core.pods.drift import first_difference, make_change
from ..core.pods.manifests import Owner
from ..errors import Conflict, NotFound, NotOwned
from . import resources
from .caches import Caches
from .client import Json, KubeApi
from .resources import Resource


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a write. `changed`: False if nothing had to be written. `difference`: the first field
    that differed before."""

    item: Json
    created: bool = False
    changed: bool = True
    difference: str = ""

    def differs(self, manifest: Json) -> bool:
        """Whether the API server's answer differs from `manifest`, because admission changed the write."""
        return first_difference(manifest, self.item) is not None


class Children:
    """Reads from the caches, writes to the API server, and stores its answers in the caches."""

    def __init__(self, api: KubeApi, caches: Caches) -> None:
        self._api = api
        self._caches = caches

    async def put(self, manifest: Json) -> Written:
        """Create the object, or change it if it differs. Raises NotOwned if it belongs to another owner."""
        resource = resources.BY_KIND[manifest["apiVersion"], manifest["kind"]]
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        live = self._caches.get(resource, namespace, name)
        if live is None:
            self._api.check_lease()
            try:
                return Written(
                    self._caches.remember(resource, await self._api.create(resource, namespace, manifest)),
                    True,
                )
            except Conflict:
                live = await self.find(resource, namespace, name)
                if live is None:
                    raise
        found = holder(live, owner_in(manifest))
        if found is not Holder.OURS:
            raise NotOwned(manifest["kind"], name, found)
        change = make_change(manifest, live)
        if change is None:
            return Written(self._caches.remember(resource, live), changed=False)
        self._api.check_lease()
        try:
            written = await self._api.merge(resource, namespace, name, change)
        except NotFound as error:  # deleted since: the watch reports that, and the object is created anew
            raise Conflict(error.status, error.message, error.target) from error
        return Written(
            self._caches.remember(resource, written), difference=first_difference(manifest, live) or ""
        )

    async def mark(self, resource: Resource, live: Json, change: Json) -> None:
        """Change an object that is known to be ours, if its resourceVersion is unchanged."""
        namespace, name = live["metadata"]["namespace"], live["metadata"]["name"]
        this = {key: live["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {**change, "metadata": {**change.get("metadata", {}), **this}}
        self._api.check_lease()
        self._caches.remember(resource, await self._api.merge(resource, namespace, name, body))

    async def remove(self, resource: Resource, namespace: str, name: str, owner: Owner | None) -> bool:
        """Delete the cached object if it is ours. Returns False if there was nothing to delete."""
        live = self._caches.get(resource, namespace, name)
        if live is None or holder(live, owner) is not Holder.OURS:
            return False
        try:
            await self._api.delete(resource, namespace, name, live["metadata"]["uid"])
        except NotFound:
            return False
        return True

    async def find(self, resource: Resource, namespace: str, name: str) -> Json | None:
        """The present object, whatever its labels, by one call; None without one. Needs only the right to
        `list`."""
        found = await self._api.list(resource, namespace, field=f"metadata.name={name}")
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        return next(({**kind, **item} for item in found.get("items") or ()), None)
