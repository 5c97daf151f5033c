"""Whether a spec still asks for the pods of a recorded revision.

Fields are compared one by one. A hash would not do: a later version's hash covers other fields, so it would
restart running pods. A field that is unset now and was unset then keeps its recorded value, even if its
default has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ...api import PodInputs
from ..adapters.mounts import can_take
from .revision import NOT_IN_PODS, SETS, Revision, legacy_hash, revision_hash


def current_hash(spec: PodInputs, revisions: Mapping[str, Revision]) -> str:
    """Hash of the revision that the spec asks for: the latest recorded one that agrees and is no restart,
    else a new one."""
    same = [r for r in revisions.values() if not r.salt and agrees(spec, r)]
    return max(same, key=lambda r: r.number).hash if same else revision_hash(spec)


def names_inputs(hash_: str, spec: PodInputs, current: str) -> bool:
    """Whether some version of the operator may write `hash_` for this spec. `current`: its current_hash."""
    return hash_ == current or hash_ in (revision_hash(spec), legacy_hash(spec))


def agrees(spec: PodInputs, revision: Revision) -> bool:
    """Whether the revision's pods are what the spec asks for, or can become it without a restart."""
    if not can_take(revision.inputs.adapters, spec.adapters):
        return False
    return _agree(spec, revision.inputs, revision.defaulted, PodInputs.model_fields, "")


def _agree(
    now: BaseModel, then: BaseModel, defaulted: frozenset[str], fields: Iterable[str], at: str
) -> bool:
    for name in fields:
        path = at + str(type(now).model_fields[name].alias or name)
        written = name in now.model_fields_set
        if path in NOT_IN_PODS or (not written and _is_in(path, defaulted)):
            continue
        mine, theirs = getattr(now, name), getattr(then, name)
        if path in SETS:
            mine, theirs = sorted(mine), sorted(theirs)
        pairs = list(_models(mine, theirs, path)) if written else []
        if not pairs and mine != theirs:
            return False
        if any(not _agree(a, b, defaulted, type(a).model_fields, f"{where}.") for a, b, where in pairs):
            return False
    return True


def _models(mine: Any, theirs: Any, path: str) -> Iterator[tuple[BaseModel, BaseModel, str]]:
    """Pairs of models to be compared field by field, with their path."""
    if isinstance(mine, BaseModel) and isinstance(theirs, BaseModel):
        yield mine, theirs, path
    elif isinstance(mine, tuple) and isinstance(theirs, tuple) and len(mine) == len(theirs):
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True)):
            if isinstance(a, BaseModel) and isinstance(b, BaseModel):
                yield a, b, f"{path}.{number}"


def _is_in(path: str, defaulted: frozenset[str]) -> bool:
    parts = path.split(".")
    return any(".".join(parts[:length]) in defaulted for length in range(1, len(parts) + 1))
