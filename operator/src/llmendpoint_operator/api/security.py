"""Who may reach an endpoint's pods."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel, rule, rules

CLIENT_RULE = rule(
    "has(self.ipBlock) != (has(self.namespaceSelector) || has(self.podSelector))",
    "each of security.allowedClients needs either ipBlock, or namespaceSelector or podSelector (one or both); for "
    "example namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-b}}",
)
CIDR_RULE = rule(
    "isCIDR(self)",
    "security.allowedClients: cidr and except need an address and a prefix length; for example 10.0.0.0/8 or "
    "fd00::/8",
)

Cidr = Annotated[str, Field(min_length=1, max_length=43, json_schema_extra=rules(CIDR_RULE))]


class LabelSelector(ApiModel):
    """Objects that have all of these labels. Without labels, every object."""

    match_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)] | None = (
        None
    )
    """Labels that an object must have. If not set, every object matches."""


class IpBlock(ApiModel):
    """A range of addresses."""

    cidr: Cidr
    """The range, for example `10.0.0.0/8`."""
    except_: Annotated[tuple[Cidr, ...], Field(max_length=16, alias="except")] = ()
    """Ranges inside `cidr` that are not included."""


class Client(ApiModel, json_schema_extra=rules(CLIENT_RULE)):
    """Who may connect to the pods, like a peer in a NetworkPolicy."""

    namespace_selector: LabelSelector | None = None
    """Namespaces of the clients, by their labels. If only podSelector is set, the endpoint's own namespace."""
    pod_selector: LabelSelector | None = None
    """Pods of the clients, by their labels. If only namespaceSelector is set, all pods of those namespaces."""
    ip_block: IpBlock | None = None
    """Addresses of the clients, for clients outside the cluster."""


class SecuritySpec(ApiModel):
    """Who may connect to the pods of the endpoint."""

    allowed_clients: Annotated[tuple[Client, ...], Field(max_length=32)] = ()
    """Who may connect directly to the pods and to the endpoint's Service. The gateway, the operator and Prometheus
    always may, and callers of the gateway need no entry here. This needs a network plugin that enforces
    NetworkPolicies."""
