"""Which cluster the address of each routable replica belongs to."""

from collections.abc import Iterable, Iterator

from llmendpoint_gateway.core.endpoint.view import Part, View
from llmendpoint_gateway.core.placement.routing import cluster_name


class Addresses:
    """Two clusters briefly share an address when a new pod has a former pod's address. The last cluster by name counts."""

    def __init__(self) -> None:
        self._clusters: dict[str, tuple[str, ...]] = {}

    def change(self, before: View, after: View, keys: Iterable[str]) -> set[str]:
        """Apply the change of these endpoints. Returns all addresses that it may affect."""
        old: set[tuple[str, str]] = set()
        new: set[tuple[str, str]] = set()
        for key in keys:
            old |= _pairs(key, before.part(key))
            new |= _pairs(key, after.part(key))
        for address, cluster in old - new:
            left = tuple(name for name in self._clusters[address] if name != cluster)
            if left:
                self._clusters[address] = left
            else:
                del self._clusters[address]
        for address, cluster in new - old:
            self._clusters[address] = tuple(sorted((*self._clusters.get(address, ()), cluster)))
        return {address for address, _ in old | new}

    def cluster(self, address: str) -> str | None:
        clusters = self._clusters.get(address)
        return clusters[-1] if clusters else None

    def __contains__(self, address: object) -> bool:
        return address in self._clusters

    def __iter__(self) -> Iterator[str]:
        return iter(self._clusters)

    def __len__(self) -> int:
        return len(self._clusters)


def _pairs(key: str, part: Part) -> set[tuple[str, str]]:
    return {
        (replica.address, cluster_name(key, revision))
        for revision, replicas in part.revisions.items()
        for replica in replicas
        if replica.routable
    }
