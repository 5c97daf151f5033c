"""What the caches keep of an object. This decides the operator's memory: 1,000 endpoints have 8,000
objects."""

from __future__ import annotations

import sys
from typing import Any, cast

from .client import Json

SHARED_LENGTH = 64
"""Longer texts seldom occur twice."""


def trim(item: Json) -> Json:
    """The object without what no decision reads: managedFields except managers' names, most of a pod, and all
    of a node except its labels and allocatable resources. Equal keys and short texts share memory."""
    return cast(Json, _shared(_needed(item)))


def _needed(item: Json) -> Json:
    metadata: dict[str, Any] = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
    if item.get("kind") == "LLMEndpoint":
        managers = item["metadata"].get("managedFields") or ()
        metadata["managedFields"] = [{k: v for k, v in m.items() if k != "fieldsV1"} for m in managers]
    if item.get("kind") == "Job":  # a model's Job is recognised as ours by its managers
        managers = item["metadata"].get("managedFields") or ()
        metadata["managedFields"] = [
            {"manager": m.get("manager")} for m in managers if not m.get("subresource")
        ]
    item = {**item, "metadata": metadata}
    if item.get("kind") == "Node":
        return {
            **item,
            "spec": {},
            "status": {"allocatable": item.get("status", {}).get("allocatable") or {}},
        }
    if item.get("kind") == "Pod" and "spec" in item:
        fields = ("name", "image", "resources")
        containers = [{k: c[k] for k in fields if k in c} for c in item["spec"].get("containers") or ()]
        placed = {"nodeName": item["spec"]["nodeName"]} if "nodeName" in item["spec"] else {}
        item["spec"] = {"containers": containers, **placed}
    return item


def _shared(value: Any) -> Any:
    """A JSON parser creates every key anew. Sharing equal texts halves the memory of objects."""
    if isinstance(value, dict):
        return {sys.intern(name): _shared(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shared(item) for item in value]
    if isinstance(value, str) and len(value) <= SHARED_LENGTH:
        return sys.intern(value)
    return value
