"""Manifests of an endpoint's smaller children. No client and no clock; tests/golden has the results."""

from __future__ import annotations

from ..names import PORT_NAME, child_name, pod_selector
from .manifests import Manifest, Owner, child_metadata
from .revision import Revision


def make_service_account(owner: Owner) -> Manifest:
    """The pods' identity. It has no permissions, and its token is not mounted."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": child_metadata(owner, owner.name, None),
        "automountServiceAccountToken": False,
    }


def make_controller_revision(owner: Owner, hash_: str, number: int, data: Manifest) -> Manifest:
    """The record of what a revision consists of."""
    return {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": child_metadata(owner, child_name(owner.name, hash_), hash_),
        "revision": number,
        "data": data,
    }


def make_headless_service(owner: Owner, revision: Revision) -> Manifest:
    """The headless Service of one revision's pods. The gateway reads its EndpointSlices."""
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
    """The Service for callers without the gateway: port 80, to the pods of one revision."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": child_metadata(owner, owner.name, None),
        "spec": {"selector": pod_selector(owner.name, revision), "ports": [_service_port(80)]},
    }


def _service_port(port: int) -> Manifest:
    return {"name": PORT_NAME, "port": port, "targetPort": PORT_NAME, "protocol": "TCP"}
