"""Disputes about children and statuses that others change back (core/endpoint/disputes.py), in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from ...core.endpoint.disputes import Dispute, Disputes, fingerprint, written
from ...core.names import MANAGER, Key
from ...core.pods.drift import first_difference
from ...errors import ApiError
from ...kube import resources
from ...kube.children import Children, Written
from ...kube.client import Json

Place = tuple[str, str]
"""Kind and name of a child."""


class Contests:
    """Has one entry for each child that was changed; creating a child makes none."""

    def __init__(self, children: Children) -> None:
        self._children = children
        self._entries: dict[Key, dict[tuple[str, str], Dispute]] = {}
        self._statuses: dict[Key, Dispute] = {}

    def of(self, key: Key) -> Disputes:
        """The disputes about one endpoint's children."""
        return self._entries.get(key, {})

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        self._entries.pop(key, None)
        self._statuses.pop(key, None)

    async def wrote(self, key: Key, manifest: Json, answer: Written) -> Dispute | None:
        """To be called after a write of a child. Returns the dispute if this write was the last before a
        pause."""
        if answer.created or not answer.changed:
            return None
        place = manifest["kind"], manifest["metadata"]["name"]
        left = first_difference(manifest, answer.item)
        before = self._entries.get(key, {}).get(place)
        dispute = written(before, manifest, left, datetime.now(UTC).timestamp())
        if not dispute.field:
            dispute = replace(dispute, field=answer.difference)
        begins = dispute.open and not (before is not None and before.open and before.wanted == dispute.wanted)
        if begins:
            dispute = replace(dispute, by="" if dispute.futile else await self._others(manifest))
        self._entries.setdefault(key, {})[place] = dispute
        return dispute if begins else None

    def settle(self, key: Key, wanted: Iterable[Place], now: datetime) -> float | None:
        """Forget disputes that are over: the child is as wanted and its pause, or its counting time, has
        passed. A child that was just written is as wanted too, but another controller needs a moment to
        change it back. `wanted`: children that should be written. Returns the seconds until the next pause
        ends."""
        entries, due = self._entries.get(key, {}), set(wanted)
        waits = []
        for place, dispute in list(entries.items()):
            wait = dispute.until - now.timestamp()
            over = wait <= 0 if dispute.open else dispute.forgotten(now.timestamp())
            if over and place not in due:
                del entries[place]
            elif dispute.open and wait > 0:
                waits.append(wait)
        return min(waits, default=None)

    def wrote_status(self, key: Key, status: Json, now: datetime) -> None:
        """To be called after a write of a status. The first write is no repetition and counts 0."""
        before = self._statuses.get(key)
        dispute = written(before, _status_of(key, status), None, now.timestamp())
        first = before is None or before.wanted != dispute.wanted or before.forgotten(now.timestamp())
        self._statuses[key] = replace(dispute, count=0) if first else dispute

    def status_held(self, key: Key, status: Json, now: datetime) -> float:
        """Seconds until the same status may be written again; 0 if it may be now."""
        dispute = self._statuses.get(key)
        if dispute is None or dispute.wanted != fingerprint(_status_of(key, status)):
            return 0.0
        return max(0.0, dispute.until - now.timestamp())

    async def _others(self, manifest: Json) -> str:
        """Other field managers of the object; empty if there is none, for example if admission changes the
        operator's own writes."""
        resource = resources.BY_KIND[manifest["apiVersion"], manifest["kind"]]
        namespace, name = manifest["metadata"]["namespace"], manifest["metadata"]["name"]
        try:
            live = await self._children.find(resource, namespace, name)
        except ApiError:
            return ""
        entries = (live or {}).get("metadata", {}).get("managedFields") or ()
        names = {str(e.get("manager")) for e in entries if not e.get("subresource")} - {MANAGER}
        return ", ".join(f"manager {name!r}" for name in sorted(names)[:5])


def _status_of(key: Key, status: Json) -> Json:
    return {"kind": "LLMEndpoint", "metadata": {"name": key[1]}, "status": status}
