"""Makes the table by which each request is decided, from the view and from what Envoy has acknowledged."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmendpoint_gateway.core.endpoint.endpoint_settings import CircuitSettings
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, Replica
from llmendpoint_gateway.core.endpoint.shared_map import GONE, SharedMap, with_changes
from llmendpoint_gateway.core.endpoint.view import View

Acknowledged = Callable[[str], frozenset[str]]
"""Cluster name -> the addresses among its endpoints that Envoy has acknowledged."""


@dataclass(frozen=True, slots=True)
class Target:
    """One revision's share: its routable replicas sorted by address, and its weight relative to the other shares."""

    revision: str
    cluster: str
    addresses: tuple[str, ...]
    weight: int = 100


@dataclass(frozen=True, slots=True)
class Route:
    """Where an endpoint's requests go now.

    `assignment`: the last one that could be applied whole; None before the first. `targets`: the revisions that share
    the requests. `others`: further revisions with routable replicas. `standby`: the one of these that a rollout rolls
    back to; it is used if no target can be reached. `circuit`: settings of the endpoint's breaker; None keeps the
    breaker closed, because a rollout judges by itself. `first_byte`: seconds within which an answer must begin.
    """

    assignment: Assignment | None
    targets: tuple[Target, ...]
    others: tuple[Target, ...] = ()
    standby: Target | None = None
    circuit: CircuitSettings | None = None
    first_byte: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """`names`: model name -> endpoint key. `routes`: endpoint key -> route; absent before the first assignment.
    `expecting`: keys of endpoints that will get a replica if they have none."""

    names: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=SharedMap)
    expecting: frozenset[str] = frozenset()


def cluster_name(endpoint: str, revision: str) -> str:
    """A cluster is named after its revision and never modified, so a switch is a change of name in one header."""
    return f"{endpoint}/{revision}"


def change_table(table: Table, view: View, keys: Iterable[str], acknowledged: Acknowledged) -> Table:
    """The table after these endpoints, or their acknowledged addresses, changed. It is one value, so a switch is one
    assignment."""
    turned = set[str]()
    routes: dict[str, Route] = {}
    for key in keys:
        endpoint, before = view.endpoints.get(key), table.routes.get(key)
        if (endpoint is not None and endpoint.expects) != (key in table.expecting):
            turned.add(key)
        if endpoint is not None and endpoint.assignment is not None:
            revisions, applied = view.part(key).revisions, before.assignment if before else None
            routes[key] = _route(endpoint, endpoint.assignment, revisions, acknowledged, applied)
        else:
            routes[key] = GONE
    expecting = table.expecting ^ turned if turned else table.expecting
    return Table(view.names, with_changes(table.routes, routes), expecting)


def _route(
    endpoint: Endpoint,
    wanted: Assignment,
    revisions: Mapping[str, tuple[Replica, ...]],
    acknowledged: Acknowledged,
    applied: Assignment | None,
) -> Route:
    key = endpoint.key
    ready: dict[str, tuple[str, ...]] = {}
    for revision, replicas in revisions.items():
        held = acknowledged(cluster_name(key, revision))
        if addresses := routable(replicas, held, endpoint.draining):
            ready[revision] = addresses
    route = make_route(key, wanted, ready, applied, endpoint.proven)
    circuit = None if endpoint.judged or route.standby is not None else endpoint.circuit
    return replace(route, circuit=circuit, first_byte=endpoint.first_byte)


def make_route(
    key: str,
    wanted: Assignment,
    ready: Mapping[str, tuple[str, ...]],
    applied: Assignment | None,
    proven: str | None = None,
) -> Route:
    """Apply the wanted assignment once each of its revisions is in `ready` (revision -> routable addresses, not empty).

    Until then the applied one stays, so the two watches may report a switch in either order. An assignment with the
    same weights, which only drains other pods, is applied at once. If a revision of the applied assignment is not
    ready, the rest get its share. Assignments are compared whole: after a restored backup a lower epoch, or the same
    with other weights, is what is wanted now.
    """
    targets = _share(key, wanted, ready)
    if len(targets) == len(wanted.weights) or (applied is not None and applied.weights == wanted.weights):
        applied = wanted
    elif applied is not None and applied != wanted:
        targets = _share(key, applied, ready) or targets
    used = {target.revision for target in targets}
    unused = Assignment(None, tuple((revision, 100) for revision in ready if revision not in used))
    others = _share(key, unused, ready)
    standby = next((target for target in others if target.revision == proven), None)
    return Route(applied, targets, others, standby)


def _share(key: str, assignment: Assignment, ready: Mapping[str, tuple[str, ...]]) -> tuple[Target, ...]:
    return tuple(
        Target(revision, cluster_name(key, revision), ready[revision], weight)
        for revision, weight in assignment.weights
        if revision in ready
    )


def routable(
    replicas: tuple[Replica, ...], acknowledged: frozenset[str], draining: Collection[str] = ()
) -> tuple[str, ...]:
    """The addresses of replicas that are ready, not on their way out, and known to Envoy, which cannot send to any
    other."""
    return tuple(
        r.address for r in replicas if r.routable and r.address in acknowledged and r.pod not in draining
    )
