"""The revisions that an endpoint keeps, and what changed from each to the next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .names import REVISION_LABEL
from .objects import Object, label_of, status_of
from .tree import role_of


@dataclass(frozen=True, slots=True)
class Entry:
    """One kept revision. `number` grows each time the spec asks for the revision again. `changes`: against the entry
    before, such as `engine.maxNumSeqs: 8 -> 4`; empty for the oldest."""

    number: int
    revision: str
    role: str
    created: str
    model: str
    changes: tuple[str, ...]


def history_of(endpoint: Object, records: Iterable[Object]) -> tuple[Entry, ...]:
    """Oldest first. `records` are the endpoint's ControllerRevisions."""
    ordered = sorted(records, key=lambda r: int(r.get("revision", 0)))
    asked = {status_of(endpoint).get("targetRevision"), status_of(endpoint).get("activeRevision")}
    made, before = [], None
    for record in ordered:
        revision = label_of(record, REVISION_LABEL)
        if revision is None:
            continue
        inputs = (record.get("data") or {}).get("inputs") or {}
        role = role_of(endpoint, revision)
        made.append(
            Entry(
                number=int(record.get("revision", 0)),
                revision=revision,
                role="kept" if role == "old" and revision not in asked else role,
                created=str(record["metadata"].get("creationTimestamp", "")),
                model=str((inputs.get("model") or {}).get("source", "?")),
                changes=() if before is None else changes_between(before, inputs),
            )
        )
        before = inputs
    return tuple(made)


def find_entry(entries: Sequence[Entry], wanted: str) -> Entry | None:
    """The only entry with this number, with this hash, or whose hash begins with it; None if none or several match."""
    exact = [e for e in entries if wanted in (str(e.number), e.revision)]
    begun = [e for e in entries if e.revision.startswith(wanted)] if wanted else []
    found = exact or begun
    return found[0] if len(found) == 1 else None


def changes_between(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Fields that differ, by path. A field that is absent has its default."""
    old, new = _flat(before), _flat(after)
    return tuple(
        f"{path}: {old.get(path, 'default')} -> {new.get(path, 'default')}"
        for path in sorted(old.keys() | new.keys())
        if old.get(path) != new.get(path)
    )


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        found: dict[str, Any] = {}
        for name, item in value.items():
            found |= _flat(item, f"{path}.{name}" if path else str(name))
        return found
    return {path: value}
