"""Which foreign objects have the names of an endpoint's children. They are found when a write is held back,
and checked again until they are gone."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...core.endpoint.ownership import Foreign, Foreigners, Holder, holder_of, holder_of_model_job
from ...core.names import Key
from ...core.pods.manifests import Owner
from ...kube import resources
from ...kube.caches import Caches
from ...kube.children import Children

LOOK_AGAIN_S = 15.0
AWAIT_COLLECTION_S = 0.5
"""Seconds between checks of an object of a former endpoint, which garbage collection deletes in a moment."""


@dataclass(slots=True)
class _Entry:
    foreign: Foreign
    looked_at: float


class Registry:
    """Kept in memory: a new leader finds the objects again with its first write."""

    def __init__(self, children: Children, caches: Caches) -> None:
        self._children = children
        self._caches = caches
        self._entries: dict[Key, dict[tuple[str, str], _Entry]] = {}

    def of(self, key: Key) -> Foreigners:
        """The known foreign objects with names of this endpoint's children."""
        return {place: entry.foreign for place, entry in self._entries.get(key, {}).items()}

    def note(self, key: Key, foreign: Foreign) -> None:
        """To be called when a write was held back."""
        self._entries.setdefault(key, {})[foreign.kind, foreign.name] = _Entry(foreign, time.monotonic())

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        self._entries.pop(key, None)

    async def look(self, key: Key, owner: Owner) -> None:
        """Drop objects that are gone, or ours by now. The API server is asked, no more often than needed,
        about those that the caches lack."""
        entries = self._entries.get(key)
        if entries is None:
            return
        for place, entry in list(entries.items()):
            if not await self._stays(key[0], entry, owner):
                del entries[place]
        if not entries:
            del self._entries[key]

    def look_again(self, key: Key) -> float | None:
        """Seconds until the next check; None if there is nothing to check."""
        entries = self._entries.get(key, {}).values()
        waits = (AWAIT_COLLECTION_S if e.foreign.holder is Holder.FORMER else LOOK_AGAIN_S for e in entries)
        return min(waits, default=None)

    async def _stays(self, namespace: str, entry: _Entry, owner: Owner) -> bool:
        kind, name = entry.foreign.kind, entry.foreign.name
        resource = next(r for (_, k), r in resources.BY_KIND.items() if k == kind)
        live = self._caches.get(resource, namespace, name)
        if live is None:
            pause = AWAIT_COLLECTION_S if entry.foreign.holder is Holder.FORMER else LOOK_AGAIN_S
            if time.monotonic() - entry.looked_at < pause:
                return True
            live = await self._children.find(resource, namespace, name)
            entry.looked_at = time.monotonic()
        if live is None:
            return False
        found = holder_of(live, owner)
        if kind == "Job" and found is not Holder.OURS:
            found = min(found, holder_of_model_job(live), key=lambda holder: holder is not Holder.OURS)
        entry.foreign = Foreign(kind, name, found)
        return found is not Holder.OURS
