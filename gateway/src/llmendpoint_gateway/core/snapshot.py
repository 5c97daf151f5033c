"""Which clusters Envoy is to hold, and with which hosts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum

from llmendpoint_gateway.core.objects import Replica
from llmendpoint_gateway.core.routing import cluster_name
from llmendpoint_gateway.core.view import View


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


def make_clusters(view: View, busy: Collection[str]) -> dict[str, Hosts]:
    """Every active revision, every revision that has replicas, and every cluster with requests in flight.

    Revisions with replicas are held whether they are active or not: the next one is warm before the switch, and
    after a restart of the picker, which forgets its counts, no cluster with a live stream is taken from Envoy.
    """
    active = {
        (key, endpoint.active_revision)
        for key, endpoint in view.endpoints.items()
        if endpoint.active_revision is not None
    }
    populated = {revision for revision, replicas in view.replicas.items() if replicas}
    clusters: dict[str, Hosts] = dict.fromkeys(busy, ())
    for key, revision in sorted(active | populated):
        clusters[cluster_name(key, revision)] = tuple(
            Host(r.address, health_of(r)) for r in view.replicas.get((key, revision), ())
        )
    return clusters


def health_of(replica: Replica) -> Health:
    if replica.terminating:
        return Health.DRAINING
    return Health.HEALTHY if replica.ready else Health.UNHEALTHY
