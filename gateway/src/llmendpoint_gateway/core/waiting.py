"""Requests that wait for a replica: first come, first served within an endpoint, bounded over all of them."""

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)

MOST_REQUESTS = 2_000
MOST_BYTES = 128 << 20
"""Of bodies, which Envoy keeps meanwhile."""


class Waiting(Generic[T]):
    """What waits, by endpoint, with the size of its body in bytes."""

    def __init__(self, most_requests: int = MOST_REQUESTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_requests, self._most_bytes = most_requests, most_bytes
        self._sizes: dict[str, dict[T, int]] = {}
        self._requests = self._bytes = 0

    def add(self, endpoint: str, item: T, size: int) -> bool:
        """False when there is no room for it."""
        if self._requests >= self._most_requests or self._bytes + size > self._most_bytes:
            return False
        self._sizes.setdefault(endpoint, {})[item] = size
        self._requests += 1
        self._bytes += size
        return True

    def remove(self, endpoint: str, item: T) -> None:
        """It waits no longer; KeyError when it did not."""
        items = self._sizes[endpoint]
        self._bytes -= items.pop(item)
        self._requests -= 1
        if not items:
            del self._sizes[endpoint]

    def of(self, endpoint: str) -> list[T]:
        """In the order in which they came."""
        return list(self._sizes.get(endpoint, ()))

    def count(self, endpoint: str) -> int:
        """How many wait for this endpoint."""
        return len(self._sizes.get(endpoint, ()))

    def __iter__(self) -> Iterator[str]:
        """Endpoints that are waited for."""
        return iter(list(self._sizes))
