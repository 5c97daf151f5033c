"""ControllerRevisions as Revisions. Reading one costs a quarter of a millisecond, and every pass over an endpoint asks for
all of its records; so each is read once.
"""

from __future__ import annotations

from ..core.pods.revision import Revision, parse_revision
from .client import Json
from .store import key_of


class ParsedRevisions:
    """One entry for each record that the cache holds and somebody asked for."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[Json, Revision | None]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def of(self, record: Json) -> Revision | None:
        """Of a record that the cache holds now: what changed is another object there. None where it cannot be rendered."""
        key = key_of(record)
        known = self._found.get(key)
        if known is None or known[0] is not record:
            known = self._found[key] = record, parse_revision(record)
        return known[1]

    def forget(self, record: Json) -> None:
        """It changed, or is gone."""
        self._found.pop(key_of(record), None)
