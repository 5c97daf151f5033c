"""The audit line of each spec change: an Event and a log line."""

from __future__ import annotations

import structlog

from ...core.endpoint.audit import find_change
from ...core.endpoint.snapshot import Snapshot
from ...core.names import Key
from ...core.pods.grace import too_short
from ...kube.client import Json
from ...kube.events import EventWriter

log = structlog.get_logger()


class Auditor:
    """Remembers each endpoint's last processed spec, so that a change can be shown field by field."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._seen: dict[Key, Json] = {}

    def look(self, manifest: Json) -> None:
        """Remember the spec if the status says that it was processed, by this or an earlier leader."""
        if (manifest.get("status") or {}).get("observedGeneration") == manifest["metadata"].get("generation"):
            self._remember(manifest)

    def taken_up(self, snapshot: Snapshot, manifest: Json, status: Json) -> None:
        """To be called after `status` was written: report the spec change that it processed, if any."""
        seen = self._seen.get(_key(manifest))
        if seen is not None and seen["metadata"]["uid"] != manifest["metadata"]["uid"]:
            seen = None
        change = find_change(snapshot, manifest, status, seen)
        self._remember(manifest)
        if change is None:
            return
        log.info("spec changed", endpoint="/".join(_key(manifest)), **change.as_log())
        self._events.write(snapshot.endpoint, change.event())
        spec = snapshot.endpoint.spec
        if spec is not None and (warning := too_short(spec)) is not None:
            self._events.write(snapshot.endpoint, warning)

    def forget(self, key: Key) -> None:
        """Drop a deleted endpoint."""
        self._seen.pop(key, None)

    def _remember(self, manifest: Json) -> None:
        self._seen[_key(manifest)] = manifest


def _key(manifest: Json) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]
