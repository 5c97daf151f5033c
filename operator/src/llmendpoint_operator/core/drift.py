"""Whether a live object still has what we want of it.

The API server fills in defaults and others may add fields of their own, so the wanted manifest must be contained in
the live one. Lists that server-side apply merges by key are compared item by item, every other list as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "ownerReferences": ("uid",),
}
_QUANTITY_PARENTS = ("limits", "requests", "sizeLimit", "storage")
_SUFFIXES = {
    "": Decimal(1), "m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9),
    "T": Decimal(10**12), "P": Decimal(10**15), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30),
    "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip


def quantity(text: str) -> Decimal | None:
    """A Kubernetes quantity as number; None for text that is none."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", text)
    if match is None or match[2] not in _SUFFIXES:
        return None
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def first_difference(wanted: Any, live: Any, path: str = "", parent: str = "") -> str | None:
    """The path of the first wanted field that the live object lacks or has otherwise; None when there is none."""
    if isinstance(wanted, dict):
        return _dict_difference(wanted, live, path, parent)
    if isinstance(wanted, list):
        return _list_difference(wanted, live, path, parent)
    if live is None and (wanted is False or wanted in ("", 0)):
        return None  # the API server drops such values
    if wanted == live and isinstance(wanted, bool) == isinstance(live, bool):
        return None
    if (
        parent in _QUANTITY_PARENTS
        and live is not None
        and quantity(str(wanted)) == quantity(str(live)) is not None
    ):
        return None
    return path


def _dict_difference(wanted: dict[str, Any], live: Any, path: str, parent: str) -> str | None:
    if not isinstance(live, dict):
        return path
    for key, value in wanted.items():
        inner = parent if parent in _QUANTITY_PARENTS else key
        found = first_difference(value, live.get(key), f"{path}.{key}" if path else key, inner)
        if found is not None:
            return found
    return None


def _list_difference(wanted: list[Any], live: Any, path: str, parent: str) -> str | None:
    if not isinstance(live, list):
        return path if wanted else None
    for key in _MERGE_KEYS.get(parent, ()):
        if all(isinstance(item, dict) and key in item for item in wanted):
            by_key = {item.get(key): item for item in live}
            pairs = [(item, by_key.get(item[key]), f"{path}[{key}={item[key]}]") for item in wanted]
            return next(
                filter(None, (first_difference(a, b, where, parent="") for a, b, where in pairs)), None
            )
    if len(wanted) != len(live):
        return path
    pairs = [(a, b, f"{path}[{index}]") for index, (a, b) in enumerate(zip(wanted, live, strict=True))]
    return next(filter(None, (first_difference(a, b, where, parent="") for a, b, where in pairs)), None)
