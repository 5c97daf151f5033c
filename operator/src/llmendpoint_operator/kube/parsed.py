"""Parsed ControllerRevisions. Parsing one takes a quarter of a millisecond, and every pass over an endpoint
needs all of its records, so each is parsed once.
"""

from __future__ import annotations

from ..core.pods.revision import Revision, parse_revision
from .client import Json
from .store import key_of


class ParsedRevisions:
    """One entry per cached record that was asked for."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[Json, Revision | None]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def of(self, record: Json) -> Revision | None:
        """The revision of a cached record; None if it cannot be rendered. A record that changed is a new
        object in the cache and is parsed anew."""
        key = key_of(record)
        known = self._found.get(key)
        if known is None or known[0] is not record:
            known = self._found[key] = record, parse_revision(record)
        return known[1]

    def forget(self, record: Json) -> None:
        """Drop a record that changed or is gone."""
        self._found.pop(key_of(record), None)
