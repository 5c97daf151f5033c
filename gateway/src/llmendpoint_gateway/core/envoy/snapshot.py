"""Which clusters Envoy is to hold, and with which hosts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from llmendpoint_gateway.core.endpoint.objects import Replica
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.placement.routing import cluster_name


class Health(Enum):
    """Envoy's names. The picker filters by itself; these keep Envoy's fallback off replicas that are not ready."""

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
    """`generation` counts changes since the picker started; `clusters`: name -> hosts, in order of address."""

    generation: int
    clusters: Mapping[str, Hosts] = field(default_factory=dict)


def make_clusters(view: View) -> dict[str, Hosts]:
    """Every assigned revision, and every revision that has replicas.

    Revisions with replicas are held whether they are assigned or not: the next one is warm before the switch, and
    after a restart of the picker, which forgets its counts, no cluster with a live stream is taken from Envoy.
    """
    assigned = {
        (key, revision)
        for key, endpoint in view.endpoints.items()
        if endpoint.assignment is not None
        for revision, _ in endpoint.assignment.weights
    }
    populated = {revision for revision, replicas in view.replicas.items() if replicas}
    clusters: dict[str, Hosts] = {}
    for key, revision in sorted(assigned | populated):
        draining = view.endpoints[key].draining if key in view.endpoints else frozenset()
        clusters[cluster_name(key, revision)] = tuple(
            Host(r.address, health_of(r, draining)) for r in view.replicas.get((key, revision), ())
        )
    return clusters


def health_of(replica: Replica, draining: Collection[str]) -> Health:
    if replica.terminating or replica.pod in draining:
        return Health.DRAINING
    return Health.HEALTHY if replica.ready else Health.UNHEALTHY
