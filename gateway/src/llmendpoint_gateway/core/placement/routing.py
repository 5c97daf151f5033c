"""From the view and what Envoy has acknowledged to the table that each request is decided by."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from llmendpoint_gateway.core.endpoint.endpoint_settings import CircuitSettings
from llmendpoint_gateway.core.endpoint.objects import Assignment, Endpoint, Replica
from llmendpoint_gateway.core.endpoint.view import View

Acknowledged = Callable[[str], frozenset[str]]
"""Of a cluster, by its name: the addresses in the endpoints that Envoy has acknowledged for it."""


@dataclass(frozen=True, slots=True)
class Target:
    """One revision's part: its routable replicas in order of address, and its weight beside the other parts'."""

    revision: str
    cluster: str
    addresses: tuple[str, ...]
    weight: int = 100


@dataclass(frozen=True, slots=True)
class Route:
    """Where an endpoint's requests go now.

    `assignment`: the last that could be applied whole, None before the first. `targets`: who shares the requests.
    `others`: revisions with routable replicas that are not among them. `standby`: the one of those that a rollout
    goes back to, for when none of the targets can be reached. `circuit`: of the endpoint's breaker, None where it stays
    closed, because a rollout judges by itself. `first_byte`: seconds until which an answer is to have begun.
    """

    assignment: Assignment | None
    targets: tuple[Target, ...]
    others: tuple[Target, ...] = ()
    standby: Target | None = None
    circuit: CircuitSettings | None = None
    first_byte: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """`names`: model name -> endpoint key; `routes`: endpoint key -> route, absent before the first assignment;
    `expecting`: keys of endpoints to which a replica will come when they have none."""

    names: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[str, Route] = field(default_factory=dict)
    expecting: frozenset[str] = frozenset()


def cluster_name(endpoint: str, revision: str) -> str:
    """A cluster is named by its revision and never modified: a switch is a change of name in one header."""
    return f"{endpoint}/{revision}"


def change_table(table: Table, view: View, keys: Iterable[str], acknowledged: Acknowledged) -> Table:
    """The table after these endpoints have changed, or what is acknowledged of them: one value, so a switch is one
    assignment."""
    routes, turned = dict(table.routes), set[str]()
    for key in keys:
        endpoint = view.endpoints.get(key)
        if (endpoint is not None and endpoint.expects) != (key in table.expecting):
            turned.add(key)
        before = routes.pop(key, None)
        if endpoint is not None and endpoint.assignment is not None:
            revisions, applied = view.part(key).revisions, before.assignment if before else None
            routes[key] = _route(endpoint, endpoint.assignment, revisions, acknowledged, applied)
    return Table(view.names, routes, table.expecting ^ turned)


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
    """The wanted assignment once each of its revisions is in `ready` (revision -> routable addresses, not empty).

    Until then the applied one goes on, so that the two watches may report a switch in either order. One with the same
    weights, which only drains other pods, is applied at once. Of an assignment that is followed, what is not ready
    leaves its share to the rest. Assignments are compared whole: after
    a restored backup a lower epoch, or the same with other weights, is what is wanted now.
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
    """Ready, not on its way out, and known to Envoy: it would send a request for an unknown address anywhere."""
    return tuple(
        r.address for r in replicas if r.routable and r.address in acknowledged and r.pod not in draining
    )
