"""What protects an endpoint's pods: a PodDisruptionBudget and a NetworkPolicy.

The budget covers the active revision. `maxUnavailable: 1` allows the eviction of one pod at a time, even of
the only one, so that a node drain can end. AlwaysAllow permits the eviction of unready pods: they serve no
requests, and would otherwise block a drain for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...api.security import Client, LabelSelector, SecuritySpec
from ..endpoint.snapshot import Snapshot
from ..endpoint.steps import Apply, Event, Step
from ..names import ENDPOINT_LABEL, NO_REVISION, PORT_NAME, pod_selector
from .drift import first_difference
from .manifests import Manifest, Owner, child_metadata
from .neighbours import Neighbours

NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The API server sets this label on every namespace, so no tenant can claim another one's name."""
APP_NAME = "app.kubernetes.io/name"


def make_disruption_budget(owner: Owner, active: str | None) -> Manifest:
    """At most one pod of the active revision may be evicted at a time."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": child_metadata(owner, owner.name, None),
        "spec": {
            "maxUnavailable": 1,
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
            "selector": {"matchLabels": pod_selector(owner.name, active or NO_REVISION)},
        },
    }


def make_network_policy(owner: Owner, security: SecuritySpec, neighbours: Neighbours) -> Manifest:
    """Who may connect to the pods of all revisions. The kubelet's probes come from the node, which no policy
    blocks. The pods' own outgoing connections are not restricted."""
    always = (
        _pods_in(neighbours.gateway, "llmendpoint-gateway"),
        _pods_in(neighbours.operator, "llmendpoint-operator"),
        _pods_in(neighbours.prometheus, "prometheus"),
    )
    port = {"port": PORT_NAME, "protocol": "TCP"}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": child_metadata(owner, owner.name, None),
        "spec": {
            "podSelector": {"matchLabels": {ENDPOINT_LABEL: owner.name}},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [*always, *map(_peer, security.allowed_clients)], "ports": [port]}],
        },
    }


def network_policy_steps(owner: Owner, snapshot: Snapshot) -> Iterator[Step]:
    """Write the NetworkPolicy if it differs. This step precedes the first pod."""
    endpoint = snapshot.endpoint
    if endpoint.spec is None or snapshot.neighbours is None:
        return
    wanted = make_network_policy(owner, endpoint.spec.security, snapshot.neighbours)
    live = snapshot.policies.get(wanted["kind"])
    if first_difference(wanted, live) is not None:
        count = len(endpoint.spec.security.allowed_clients)
        said = f"admits gateway, operator, Prometheus and {count} of spec.security.allowedClients"
        yield Apply(wanted, Event("NetworkPolicyChanged", f"{said} now") if live else None)


def disruption_budget_steps(owner: Owner, snapshot: Snapshot, active: str | None) -> Iterator[Step]:
    """Write the PodDisruptionBudget if it differs. This step follows the status, which sets `active`."""
    wanted = make_disruption_budget(owner, active)
    if first_difference(wanted, snapshot.policies.get(wanted["kind"])) is not None:
        yield Apply(wanted)


def _pods_in(namespace: str, app: str) -> Manifest:
    return {
        "namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}},
        "podSelector": {"matchLabels": {APP_NAME: app}},
    }


def _peer(client: Client) -> Manifest:
    if client.ip_block is not None:
        block: dict[str, Any] = {"cidr": client.ip_block.cidr}
        if client.ip_block.except_:
            block["except"] = list(client.ip_block.except_)
        return {"ipBlock": block}
    selectors = {"namespaceSelector": client.namespace_selector, "podSelector": client.pod_selector}
    return {key: _selector(value) for key, value in selectors.items() if value is not None}


def _selector(selector: LabelSelector) -> Manifest:
    """The selector without an empty map, which the API server drops."""
    return {"matchLabels": dict(selector.match_labels)} if selector.match_labels else {}
