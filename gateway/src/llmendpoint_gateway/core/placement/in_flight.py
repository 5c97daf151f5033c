"""How many unfinished requests each replica has."""

from collections.abc import Mapping


class InFlight:
    """Counts by cluster and address; a zero is absent. Only `take` and `release` change them."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[str, int]] = {}

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return self._counts

    def take(self, cluster: str, address: str) -> None:
        counts = self._counts.setdefault(cluster, {})
        counts[address] = counts.get(address, 0) + 1

    def release(self, cluster: str, address: str) -> bool:
        """Returns True if this was the cluster's last request."""
        counts = self._counts[cluster]
        if counts[address] == 1:
            del counts[address]
        else:
            counts[address] -= 1
        if not counts:
            del self._counts[cluster]
        return not counts

    def of(self, cluster: str, address: str) -> int:
        return self._counts.get(cluster, {}).get(address, 0)

    def total(self) -> int:
        return sum(sum(counts.values()) for counts in self._counts.values())
