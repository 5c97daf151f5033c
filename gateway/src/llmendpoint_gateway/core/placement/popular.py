"""What share of a cluster's latest prompts had the same beginning: a popular one must lie on several replicas."""

from collections import deque

FEWEST, PER_REPLICA = 64, 16
"""So many prompts are looked back at, at least, and for each replica of the cluster."""


class Latest:
    """The last longest matches of one cluster, by their links."""

    __slots__ = ("_count", "_links")

    def __init__(self) -> None:
        self._links: deque[int] = deque()
        self._count: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._links)

    def add(self, link: int, replicas: int) -> None:
        self._links.append(link)
        self._count[link] = self._count.get(link, 0) + 1
        while len(self._links) > max(FEWEST, PER_REPLICA * replicas):
            first = self._links.popleft()
            if self._count[first] == 1:
                del self._count[first]
            else:
                self._count[first] -= 1

    def share(self, link: int) -> float:
        """Of few prompts nobody knows yet what is popular."""
        return self._count.get(link, 0) / max(FEWEST, len(self._links))
