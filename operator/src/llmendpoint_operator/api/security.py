"""Who may reach an endpoint's pods."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from .base import ApiModel, rule, rules

CLIENT_RULE = rule(
    "has(self.ipBlock) != (has(self.namespaceSelector) || has(self.podSelector))",
    "security.allowedClients: each entry has either ipBlock, or namespaceSelector and podSelector (one or both); for "
    "example namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: team-b}}",
)
CIDR_RULE = rule(
    "isCIDR(self)",
    "security.allowedClients: an ipBlock is an address and a prefix length; for example 10.0.0.0/8 or fd00::/8",
)

Cidr = Annotated[str, Field(min_length=1, max_length=43, json_schema_extra=rules(CIDR_RULE))]


class LabelSelector(ApiModel):
    """Objects that carry all of these labels; without labels, every one."""

    match_labels: Annotated[dict[str, Annotated[str, Field(max_length=63)]], Field(max_length=16)] | None = (
        None
    )
    """Labels that an object must have."""


class IpBlock(ApiModel):
    """A range of addresses."""

    cidr: Cidr
    """The range, for example `10.0.0.0/8`."""
    except_: Annotated[tuple[Cidr, ...], Field(max_length=16, alias="except")] = ()
    """Ranges inside it that are left out."""


class Client(ApiModel, json_schema_extra=rules(CLIENT_RULE)):
    """Who may call the pods; as a peer in a NetworkPolicy."""

    namespace_selector: LabelSelector | None = None
    """Namespaces by their labels. Absent beside podSelector: the endpoint's own namespace."""
    pod_selector: LabelSelector | None = None
    """Pods by their labels. Absent beside namespaceSelector: all pods of those namespaces."""
    ip_block: IpBlock | None = None
    """Addresses, for clients outside the cluster."""


class SecuritySpec(ApiModel):
    """Who may reach the endpoint's pods."""

    allowed_clients: Annotated[tuple[Client, ...], Field(max_length=32)] = ()
    """Who may call the pods and the plain Service directly, beside the gateway, the operator and Prometheus, which
    always may. It takes a network plugin that enforces NetworkPolicies. Callers of the gateway need not be listed."""
