"""What is known of the cluster: a store of watched objects, and the view that everything else is made from."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from llmendpoint_gateway.core.endpoint.names import claim_names
from llmendpoint_gateway.core.endpoint.objects import Endpoint, Replica, Slice


class Kind(Enum):
    ENDPOINT = "LLMEndpoint"
    SLICE = "EndpointSlice"


Item = Endpoint | Slice


@dataclass(frozen=True, slots=True)
class Store:
    """Watched objects by kind and `namespace/name`; a kind is absent until one whole list of it was read."""

    objects: Mapping[Kind, Mapping[str, Item]] = field(default_factory=dict)

    @property
    def synced(self) -> bool:
        return len(self.objects) == len(Kind)

    def relisted(self, kind: Kind, items: Mapping[str, Item]) -> "Store":
        """After a whole list: what it does not hold is gone, so a missed delete ends here."""
        return Store({**self.objects, kind: dict(items)})

    def applied(self, kind: Kind, key: str, item: Item) -> "Store":
        return self.relisted(kind, {**self.objects.get(kind, {}), key: item})

    def deleted(self, kind: Kind, key: str) -> "Store":
        return self.relisted(kind, {k: v for k, v in self.objects.get(kind, {}).items() if k != key})


@dataclass(frozen=True, slots=True)
class View:
    """Endpoints by key, names by claim, and every known replica by (endpoint key, revision). `paths`: that any endpoint's
    runtime declares."""

    endpoints: Mapping[str, Endpoint]
    names: Mapping[str, str]
    replicas: Mapping[tuple[str, str], tuple[Replica, ...]]
    paths: frozenset[str] = frozenset()

    def takes(self, name: str, declared: str) -> bool:
        """Whether the endpoint of this name takes a declared path; an unknown endpoint takes any."""
        endpoint = self.endpoints.get(self.names.get(name, ""))
        return endpoint is None or declared in endpoint.paths

    def revisions(self) -> dict[str, dict[str, tuple[Replica, ...]]]:
        """Endpoint key -> revision -> replicas, in order; also of endpoints that are gone."""
        grouped: dict[str, dict[str, tuple[Replica, ...]]] = {}
        for (key, revision), replicas in sorted(self.replicas.items()):
            grouped.setdefault(key, {})[revision] = replicas
        return grouped


def make_view(store: Store) -> View:
    endpoints: dict[str, Endpoint] = {}
    grouped: dict[tuple[str, str], list[Replica]] = {}
    for kind in Kind:
        for _, item in sorted(store.objects.get(kind, {}).items()):
            if isinstance(item, Endpoint):
                endpoints[item.key] = item
            else:
                grouped.setdefault((item.endpoint, item.revision), []).extend(item.replicas)
    replicas = {key: _by_pod(members) for key, members in grouped.items()}
    paths = frozenset(path for endpoint in endpoints.values() for path in endpoint.paths)
    return View(endpoints, claim_names(endpoints.values()), replicas, paths)


def _by_pod(replicas: Iterable[Replica]) -> tuple[Replica, ...]:
    """One replica per pod, in order of address.

    A pod is in two slices while it moves between them, and in one per family on a dual-stack cluster.
    Not ready in one of them is not ready: to leave out a good replica for a moment costs less than a failed request.
    """
    pods: dict[str, Replica] = {}
    for replica in replicas:
        known = pods.get(replica.pod)
        if known is not None:
            replica = replace(
                known,
                ready=known.ready and replica.ready,
                terminating=known.terminating or replica.terminating,
            )
        pods[replica.pod] = replica
    return tuple(sorted(pods.values(), key=lambda r: r.address))
