"""The audit line of each spec change, as Event and in the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from .core.audit import find_change
from .core.snapshot import Snapshot
from .kube.client import Json
from .kube.events import EventWriter

log = structlog.get_logger()

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Seen:
    uid: str
    spec: Any


class Auditor:
    """Remembers each endpoint's spec as it was taken up last, so that a change can be told field by field."""

    def __init__(self, events: EventWriter) -> None:
        self._events = events
        self._seen: dict[Key, _Seen] = {}

    def look(self, manifest: Json) -> None:
        """Remember the spec when the status says that it was taken up before, by whomever."""
        if (manifest.get("status") or {}).get("observedGeneration") == manifest["metadata"].get("generation"):
            self._remember(manifest)

    def taken_up(self, snapshot: Snapshot, manifest: Json, status: Json) -> None:
        """`status` has been written: say what of the spec it has taken up, when that is new."""
        seen = self._seen.get(_key(manifest))
        same = seen is not None and seen.uid == manifest["metadata"]["uid"]
        change = find_change(snapshot, manifest, status, seen.spec if seen and same else None)
        self._remember(manifest)
        if change is None:
            return
        log.info("spec changed", endpoint="/".join(_key(manifest)), **change.as_log())
        self._events.write(snapshot.endpoint, change.event())

    def forget(self, key: Key) -> None:
        """The endpoint is gone."""
        self._seen.pop(key, None)

    def _remember(self, manifest: Json) -> None:
        self._seen[_key(manifest)] = _Seen(manifest["metadata"]["uid"], manifest.get("spec") or {})


def _key(manifest: Json) -> Key:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]
