"""The spec that a kept revision was made from, as a change of the current one.

The user who undoes an edit writes this change, so the API server checks it like every other edit of that user.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

INPUTS = ("model", "runtime", "resources", "engine", "terminationGracePeriodSeconds")
"""Fields of a spec whose change makes a new revision. `adapters` is none of them: pods follow it as they run, so it stays."""
KEPT = frozenset({"resources.accelerator.product", "resources.accelerator.memory"})
"""Fields among them whose change makes no new revision. Records lack them, so they stay while the kind is the same."""


def spec_patch(spec: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
    """A merge patch that makes `spec` ask for what a revision recorded; empty if it already does. A field that is
    absent or empty in `inputs` gets its default."""
    return _differences(
        {field: spec[field] for field in INPUTS if field in spec},
        {field: inputs[field] for field in INPUTS if field in inputs},
        "",
    )


def _differences(now: Mapping[str, Any], then: Mapping[str, Any], at: str) -> dict[str, Any]:
    patch: dict[str, Any] = {}
    for name in sorted(now.keys() | then.keys()):
        mine, theirs, path = _filled(now.get(name)), _filled(then.get(name)), at + name
        if _same(mine, theirs) or (path in KEPT and now.get("kind") == then.get("kind")):
            continue
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            inner = _differences(mine, theirs, f"{path}.")
            patch |= {name: inner} if inner else {}
        else:
            patch[name] = theirs
    return patch


def _same(mine: Any, theirs: Any) -> bool:
    """Whether two values are the same. A quantity may be a number in a spec; records have its text."""
    number = isinstance(mine, int | float) and not isinstance(mine, bool)
    return bool(mine == theirs or (number and str(mine) == theirs))


def _filled(value: Any) -> Any:
    """The value without its empty fields, which mean the same as fields that are left out; None if nothing remains."""
    if isinstance(value, Mapping):
        value = {name: filled for name, item in value.items() if (filled := _filled(item)) is not None}
    elif isinstance(value, list):
        value = [_filled(item) for item in value]
    return None if value in ({}, []) else value
