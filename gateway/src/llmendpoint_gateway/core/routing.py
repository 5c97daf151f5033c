"""From the view and what Envoy has acknowledged to the table that each request is decided by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmendpoint_gateway.core.objects import Replica
from llmendpoint_gateway.core.view import View

Acknowledged = Mapping[str, frozenset[str]]
"""Cluster name -> the addresses in the endpoints that Envoy has acknowledged for it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where an endpoint's requests go now: routable replicas of one revision, in order of address."""

    revision: str
    cluster: str
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """`names`: model name -> endpoint key; `targets`: endpoint key -> target, absent when nothing is routable."""

    names: Mapping[str, str] = field(default_factory=dict)
    targets: Mapping[str, Target] = field(default_factory=dict)


def cluster_name(endpoint: str, revision: str) -> str:
    """A cluster is named by its revision and never modified: a switch is a change of name in one header."""
    return f"{endpoint}/{revision}"


def make_table(view: View, acknowledged: Acknowledged, previous: Table) -> Table:
    """The table after a change of the view or an acknowledgement.

    An endpoint moves to its active revision once Envoy has acknowledged a routable replica of it; until then the
    revision that it is on goes on, so that the two watches may report a switch in either order.
    """
    targets: dict[str, Target] = {}
    for key, endpoint in view.endpoints.items():
        if endpoint.active_revision is None:
            continue
        candidates = [endpoint.active_revision]
        if key in previous.targets:
            candidates.append(previous.targets[key].revision)
        for revision in candidates:
            cluster = cluster_name(key, revision)
            addresses = routable(
                view.replicas.get((key, revision), ()), acknowledged.get(cluster, frozenset())
            )
            if addresses:
                targets[key] = Target(revision, cluster, addresses)
                break
    return Table(view.names, targets)


def routable(replicas: tuple[Replica, ...], acknowledged: frozenset[str]) -> tuple[str, ...]:
    """Ready, not terminating, and known to Envoy: it would send a request for an unknown address anywhere."""
    return tuple(r.address for r in replicas if r.routable and r.address in acknowledged)
