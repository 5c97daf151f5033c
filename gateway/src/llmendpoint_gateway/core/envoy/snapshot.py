"""Which clusters Envoy holds, and with which hosts."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from llmendpoint_gateway.core.endpoint.objects import Replica
from llmendpoint_gateway.core.endpoint.view import Part
from llmendpoint_gateway.core.placement.routing import cluster_name


class Health(Enum):
    """Envoy's names. The picker filters replicas itself; these keep Envoy's fallback off replicas that are not ready."""

    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DRAINING = "DRAINING"


@dataclass(frozen=True, slots=True)
class Host:
    address: str
    health: Health


Hosts = tuple[Host, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`generation` counts changes since the picker started. `clusters`: name -> hosts, sorted by address; the same
    mapping in every generation, which changes in place. `changed`: names of those that came, changed or went with this
    generation."""

    generation: int
    clusters: Mapping[str, Hosts] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()


class Clusters:
    """The clusters that Envoy holds, with their `hosts`. `leaving`: clusters held only for requests in flight."""

    def __init__(self) -> None:
        self.hosts: dict[str, Hosts] = {}
        self.leaving: set[str] = set()
        self._of: dict[str, frozenset[str]] = {}  # endpoint -> names of its clusters

    def change(self, key: str, part: Part, busy: Callable[[str], bool]) -> set[str]:
        """Update the clusters of an endpoint that changed, or that is no longer busy. Returns the names of those that
        changed for Envoy.

        A cluster stays while it has a request.
        """
        wanted, before = make_clusters(key, part), self._of.pop(key, frozenset[str]())
        leaving: dict[str, Hosts] = {name: () for name in before if name not in wanted and busy(name)}
        after = leaving | wanted
        self.leaving -= before
        self.leaving |= leaving.keys()
        gone = before - after.keys()
        new = {name: hosts for name, hosts in after.items() if self.hosts.get(name) != hosts}
        for name in gone:
            del self.hosts[name]
        self.hosts.update(new)
        if after:
            self._of[key] = frozenset(after)
        return {*gone, *new}


def make_clusters(key: str, part: Part) -> dict[str, Hosts]:
    """The clusters of an endpoint: every assigned revision, and every revision that has replicas.

    A revision with replicas is included even if no traffic is assigned to it. So the next revision is warm before the
    switch. And a restarted picker, which lost its counts, takes no cluster with a live stream from Envoy.
    """
    endpoint = part.endpoint
    assignment = endpoint.assignment if endpoint else None
    draining = endpoint.draining if endpoint else frozenset[str]()
    assigned = {revision for revision, _ in assignment.weights} if assignment else set[str]()
    populated = {revision for revision, replicas in part.revisions.items() if replicas}
    return {
        cluster_name(key, revision): tuple(
            Host(r.address, health_of(r, draining)) for r in part.revisions.get(revision, ())
        )
        for revision in sorted(assigned | populated)
    }


def health_of(replica: Replica, draining: Collection[str]) -> Health:
    if replica.terminating or replica.pod in draining:
        return Health.DRAINING
    return Health.HEALTHY if replica.ready else Health.UNHEALTHY
