"""What the children's manifests have in common: owner, labels, container security and environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...api import EnvVar
from ..names import labels

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """The endpoint that owns the children."""

    namespace: str
    name: str
    uid: str


def child_metadata(owner: Owner, name: str, revision: str | None) -> Manifest:
    """Name, labels and owner of a child. `revision` is None on objects that all revisions share."""
    reference = {
        "apiVersion": "llmendpoint.io/v1alpha1",
        "kind": "LLMEndpoint",
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "name": name,
        "namespace": owner.namespace,
        "labels": labels(owner.name, revision),
        "ownerReferences": [reference],
    }


def container_security() -> Manifest:
    """The `restricted` Pod Security level, with a read-only root file system."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }


def environment(*layers: Sequence[EnvVar]) -> list[Manifest]:
    """Environment variables of a container. Later layers win."""
    merged = {item.name: item.value for layer in layers for item in layer}
    return [{"name": name, "value": value} if value else {"name": name} for name, value in merged.items()]
