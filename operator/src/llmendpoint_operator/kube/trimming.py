"""What the caches keep of an object. At 1,000 endpoints they hold 8,000: this decides the operator's memory."""

from __future__ import annotations

import sys
from typing import Any, cast

from .client import Json

SHARED_LENGTH = 64
"""Longer texts hardly ever occur twice."""


def trim(item: Json) -> Json:
    """Without what no decision reads: managedFields, but for the names of an endpoint's managers, most of a pod, and
    all of a node but its labels and what it has to give. Equal names and short texts are one in memory, of all objects."""
    return cast(Json, _shared(_needed(item)))


def _needed(item: Json) -> Json:
    metadata: dict[str, Any] = {k: v for k, v in item["metadata"].items() if k != "managedFields"}
    if item.get("kind") == "LLMEndpoint":
        managers = item["metadata"].get("managedFields") or ()
        metadata["managedFields"] = [{k: v for k, v in m.items() if k != "fieldsV1"} for m in managers]
    if item.get("kind") == "Job":  # a model's Job is known to be ours by its managers
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
    """A parser makes every name anew in every document; with one of each, objects take half of the memory."""
    if isinstance(value, dict):
        return {sys.intern(name): _shared(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_shared(item) for item in value]
    if isinstance(value, str) and len(value) <= SHARED_LENGTH:
        return sys.intern(value)
    return value
