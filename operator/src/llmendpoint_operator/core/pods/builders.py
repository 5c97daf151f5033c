"""The children of an endpoint as manifests: no client, no clock. tests/golden shows what a cluster gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...api import EnvVar
from ..names import PORT_NAME, child_name, labels, pod_selector
from .revision import Revision

Manifest = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Owner:
    """The endpoint that owns the children."""

    namespace: str
    name: str
    uid: str


def child_metadata(owner: Owner, name: str, revision: str | None) -> Manifest:
    """Name, labels and owner of a child; `revision` is absent on what all revisions share."""
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
    """As the `restricted` Pod Security level asks for, with a read-only root file system."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }


def environment(*layers: Sequence[EnvVar]) -> list[Manifest]:
    """Environment variables of a container; later layers win."""
    merged = {item.name: item.value for layer in layers for item in layer}
    return [{"name": name, "value": value} if value else {"name": name} for name, value in merged.items()]


def make_service_account(owner: Owner) -> Manifest:
    """The pods' identity; it is granted nothing and its token is mounted nowhere."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(owner, owner.name, None),
        "automountServiceAccountToken": False,
    }


def make_controller_revision(owner: Owner, hash_: str, number: int, data: Manifest) -> Manifest:
    """The record of what a revision is made of."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": child_metadata(owner, child_name(owner.name, hash_), hash_),
        "revision": number,
        "data": data,
    }


def make_headless_service(owner: Owner, revision: Revision) -> Manifest:
    """One revision's pods by address: its EndpointSlices are what the gateway reads."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(owner, child_name(owner.name, revision.hash), revision.hash),
        "spec": {
            "clusterIP": "None",
            "selector": pod_selector(owner.name, revision.hash),
            "ports": [_service_port(revision.runtime.ports.http)],
        },
    }


def make_service(owner: Owner, revision: str) -> Manifest:
    """The address for callers without the gateway: port 80 to the pods of one revision."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(owner, owner.name, None),
        "spec": {"selector": pod_selector(owner.name, revision), "ports": [_service_port(80)]},
    }


def _service_port(port: int) -> Manifest:
    return {"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}
