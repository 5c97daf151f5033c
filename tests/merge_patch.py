"""What the API server does with a merge patch."""

from __future__ import annotations

from typing import Any


def merged(value: Any, patch: Any) -> Any:
    """`value` after `patch` (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(value) if isinstance(value, dict) else {}
    for name, item in patch.items():
        if item is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), item)
    return found
