"""Whether a live object differs from the wanted one, and the patch that corrects it.

The API server fills in defaults, and others may add fields, so the live object may have more than the wanted
manifest. Lists with a key are compared item by item, other lists as a whole. Some additions are never allowed
and count as a difference: containers, volumes, selectors, host namespaces, privileges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Json = dict[str, Any]

_MERGE_KEYS: Mapping[str, tuple[str, ...]] = {
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "ports": ("containerPort", "port"),
    "ownerReferences": ("uid",),
}
_CLOSED_LISTS = frozenset({"containers", "initContainers", "volumes", "volumeMounts", "ports"})
"""Lists to which others may not add items."""
_CLOSED_MAPS = frozenset(
    {"selector", "matchLabels", "podSelector", "namespaceSelector", "securityContext", "capabilities"}
)
"""Maps to which others may not add fields."""
_NOT_ADDED = frozenset(
    {
        "initContainers", "volumes", "volumeMounts", "volumeDevices", "securityContext", "envFrom", "command",
        "postStart", "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostAliases", "externalIPs",
        "publishNotReadyAddresses",
    }
)  # fmt: skip
"""Fields that others may not add."""
_EXACT_LISTS = frozenset({"ingress"})
"""Lists in which an absent field means more, not less: a peer without a selector admits everybody."""
_QUANTITY_PARENTS = ("limits", "requests", "sizeLimit", "storage")
_SUFFIXES = {
    "": Decimal(1), "m": Decimal("0.001"), "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9),
    "T": Decimal(10**12), "P": Decimal(10**15), "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30),
    "Ti": Decimal(2**40), "Pi": Decimal(2**50),
}  # fmt: skip
_REPLACED_SPECS = ("HorizontalPodAutoscaler", "ScaledObject")
"""Kinds whose spec belongs to the operator alone: fields that are no longer wanted are removed."""


def quantity(text: str) -> Decimal | None:
    """A Kubernetes quantity as a number; None for other text."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", text)
    if match is None or match[2] not in _SUFFIXES:
        return None
    return Decimal(match[1]) * _SUFFIXES[match[2]]


def first_difference(wanted: Any, live: Any, path: str = "", parent: str = "") -> str | None:
    """The path of the first wanted field that is missing or differs in the live object, or of a forbidden
    addition; None without a difference."""
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


def make_change(wanted: Json, live: Json) -> Json | None:
    """The JSON merge patch that turns `live` into `wanted`; None if nothing differs. It carries the uid, so
    that it never changes an object that has taken the name since. A list that differs is sent whole."""
    parts = ("metadata",) if wanted["kind"] == "Job" else wanted  # a Job's pod template is immutable
    change = _change({part: wanted[part] for part in parts if part in wanted}, live)
    if wanted["kind"] in _REPLACED_SPECS and change:
        change["spec"] = _replacement(wanted["spec"], live.get("spec") or {})
    if not change:
        return None
    change["metadata"] = {**change.get("metadata", {}), "uid": live["metadata"]["uid"]}
    return change


def with_additions(wanted: Any, live: Any, parent: str = "") -> Any:
    """`wanted` with the forbidden additions of `live`, so that they are no difference."""
    if isinstance(wanted, dict) and isinstance(live, dict):
        kept = {key: with_additions(value, live.get(key), key) for key, value in wanted.items()}
        return kept | {key: live[key] for key in _added(wanted, live, parent)}
    if not (isinstance(wanted, list) and isinstance(live, list)) or parent not in _CLOSED_LISTS:
        return wanted
    for key in _MERGE_KEYS[parent]:
        if all(isinstance(item, dict) and key in item for item in wanted):
            by_key = {item.get(key): item for item in live}
            kept_items = [with_additions(item, by_key.pop(item[key], None)) for item in wanted]
            return [*kept_items, *by_key.values()]
    return wanted


def _dict_difference(wanted: Json, live: Any, path: str, parent: str) -> str | None:
    if not isinstance(live, dict):
        return path
    for key, value in wanted.items():
        there = live.get(key)
        if value is there or (type(value) is str and value == there):
            continue  # nearly all values take this short way
        inner = parent if parent in _QUANTITY_PARENTS else key
        found = first_difference(value, there, _at(path, key), inner)
        if found is not None:
            return found
    added = _added(wanted, live, parent)
    return _at(path, added[0]) if added else None


def _added(wanted: Json, live: Json, parent: str) -> list[str]:
    """Fields of `live` that others may not add."""
    closed = parent in _CLOSED_MAPS
    if not closed and _NOT_ADDED.isdisjoint(live):
        return []
    return [k for k, v in live.items() if k not in wanted and v and (closed or k in _NOT_ADDED)]


def _list_difference(wanted: list[Any], live: Any, path: str, parent: str) -> str | None:
    if not isinstance(live, list):
        return path if wanted else None
    if parent in _EXACT_LISTS:
        return None if wanted == live else path
    for key in _MERGE_KEYS.get(parent, ()):
        if all(isinstance(item, dict) and key in item for item in wanted):
            by_key = {item.get(key): item for item in live}
            pairs = [(item, by_key.pop(item[key], None), f"{path}[{key}={item[key]}]") for item in wanted]
            added = [f"{path}[{key}={name}]" for name in by_key] if parent in _CLOSED_LISTS else []
            differences = (first_difference(a, b, where, parent="") for a, b, where in pairs)
            return next(filter(None, differences), added[0] if added else None)
    if len(wanted) != len(live):
        return path
    pairs = [(a, b, f"{path}[{index}]") for index, (a, b) in enumerate(zip(wanted, live, strict=True))]
    return next(filter(None, (first_difference(a, b, where, parent="") for a, b, where in pairs)), None)


def _change(wanted: Json, live: Json, parent: str = "") -> Json:
    change: Json = {}
    for key, value in wanted.items():
        there = live.get(key)
        inner = parent if parent in _QUANTITY_PARENTS else key
        if first_difference(value, there, key, inner) is None:
            continue
        if isinstance(value, dict) and isinstance(there, dict):
            change[key] = _change(value, there, inner)
        else:
            change[key] = _with_others(value, there or ()) if key == "ownerReferences" else value
    return change | dict.fromkeys(_added(wanted, live, parent))


def _with_others(ours: list[Any], there: Any) -> list[Any]:
    """Our owner references, with those that others added."""
    uids = {reference["uid"] for reference in ours}
    return [*(reference for reference in there if reference.get("uid") not in uids), *ours]


def _replacement(wanted: Json, live: Json) -> Json:
    """The merge patch that leaves only the wanted fields."""
    change: Json = dict.fromkeys(key for key in live if key not in wanted)
    for key, value in wanted.items():
        there = live.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            change[key] = _replacement(value, there)
        else:
            change[key] = value
    return change


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
