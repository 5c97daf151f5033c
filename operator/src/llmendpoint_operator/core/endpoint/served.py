"""Which endpoint a bare model name means if several claim it: the oldest, as every gateway decides
(docs/contribute/contracts.md).

The claims are indexed, so that a change of one endpoint needs no look at the others. An operator with
--watch-namespace knows only the claims of that namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..names import Key
from ..sentences import fitting

Claim = tuple[str, str]
"""Creation time, which sorts as text, and `namespace/name`. The lowest claim gets the name."""

NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Conflict:
    """A bare name that an endpoint claims and another one holds."""

    name: str
    holder: str
    """As `namespace/name`."""


def claimed_names(manifest: Mapping[str, Any]) -> frozenset[str]:
    """Bare names that a stored LLMEndpoint claims; its own name if it lists none."""
    model = (manifest.get("spec") or {}).get("model") or {}
    served = model.get("servedNames") if isinstance(model, Mapping) else None
    names = {name for name in served if isinstance(name, str)} if isinstance(served, list) else set()
    return frozenset(names or {str(manifest["metadata"]["name"])})


class ServedNames:
    """Who claims each name, and who holds it."""

    def __init__(self) -> None:
        self._names: dict[Key, tuple[str, frozenset[str]]] = {}
        self._claims: dict[str, dict[Key, Claim]] = {}
        self._holders: dict[str, Key] = {}

    def claim(self, key: Key, created: str, names: Iterable[str]) -> set[Key]:
        """Replace the endpoint's claims. Returns the endpoints for which the holder of a name changed."""
        wanted = created, frozenset(names)
        known = self._names.get(key, ("", frozenset()))
        if wanted == known:
            return set()
        told: set[Key] = set()
        for name in known[1] if created != known[0] else known[1] - wanted[1]:
            told |= self._leave(key, name)
        for name in wanted[1] if created != known[0] else wanted[1] - known[1]:
            told |= self._take(key, name, (created, "/".join(key)))
        self._names[key] = wanted
        return told

    def drop(self, key: Key) -> set[Key]:
        """Drop a deleted endpoint. Returns the endpoints for which the holder of a name changed."""
        _, names = self._names.pop(key, ("", frozenset()))
        return {other for name in names for other in self._leave(key, name)}

    def conflicts(self, key: Key) -> tuple[Conflict, ...]:
        """Names that the endpoint claims and another one holds."""
        _, names = self._names.get(key, ("", frozenset()))
        lost = sorted(name for name in names if self._holders.get(name, key) != key)
        return tuple(Conflict(name, "/".join(self._holders[name])) for name in lost)

    def _take(self, key: Key, name: str, claim: Claim) -> set[Key]:
        claims = self._claims.setdefault(name, {})
        claims[key] = claim
        holder = self._holders.get(name)
        if holder is not None and claims[holder] < claim:
            return set()
        self._holders[name] = key
        return set(claims) - {key}

    def _leave(self, key: Key, name: str) -> set[Key]:
        claims = self._claims.get(name, {})
        claims.pop(key, None)
        if not claims:
            self._claims.pop(name, None)
            self._holders.pop(name, None)
            return set()
        if self._holders.get(name) != key:
            return set()
        self._holders[name] = min(claims, key=lambda other: claims[other])
        return set(claims)


def conflict_message(key: Key, conflicts: tuple[Conflict, ...]) -> str:
    """The message of the condition NameConflict; empty without a conflict."""
    if not conflicts:
        return ""
    told = ", ".join(f"{c.name!r} go to {c.holder}" for c in conflicts[:NAMES_SHOWN])
    more = f" and {len(conflicts) - NAMES_SHOWN} more names to others" if len(conflicts) > NAMES_SHOWN else ""
    own = "/".join(key)
    hint = f"call this endpoint as {own!r}, or choose other names in spec.model.servedNames"
    return fitting(f"requests for the model {told}{more}: an older endpoint has the name; {hint}")
