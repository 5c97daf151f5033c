"""A mapping that never changes. A changed copy shares all but a small part with it.

What a copy costs does not depend on the number of keys: a change of one endpoint among thousands copies one shelf.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar, cast

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

SHELVES = 1024  # a power of two; with 10,000 keys a shelf holds ten
_EMPTY: dict[Any, Any] = {}
GONE: Any = object()
"""In place of a value: the copy does not have this key."""


class SharedMap(Mapping[K, V]):
    """Its order is by no rule."""

    __slots__ = ("_shelves", "_size")

    def __init__(self) -> None:
        self._shelves: list[dict[K, V]] = [_EMPTY] * SHELVES
        self._size = 0

    def changed(self, news: Mapping[K, V]) -> "SharedMap[K, V]":
        """A copy with these values; a value may be GONE."""
        copy: SharedMap[K, V] = SharedMap.__new__(SharedMap)
        shelves, size, mine = list(self._shelves), self._size, set[int]()
        for key, value in news.items():
            place = hash(key) & (SHELVES - 1)
            if place not in mine:
                mine.add(place)
                shelves[place] = dict(shelves[place])
            shelf = shelves[place]
            size -= len(shelf)
            if value is GONE:
                shelf.pop(key, None)
            else:
                shelf[key] = value
            size += len(shelf)
        copy._shelves, copy._size = shelves, size
        return copy

    def __getitem__(self, key: K) -> V:
        return self._shelves[hash(key) & (SHELVES - 1)][key]

    def get(self, key: K, default: D = None) -> V | D:  # type: ignore[assignment]  # typeshed has overloads
        return self._shelves[hash(key) & (SHELVES - 1)].get(key, default)

    def __contains__(self, key: object) -> bool:
        return key in self._shelves[hash(key) & (SHELVES - 1)]

    def __iter__(self) -> Iterator[K]:
        for shelf in self._shelves:
            yield from shelf

    def __len__(self) -> int:
        return self._size

    def __repr__(self) -> str:
        return f"SharedMap({dict(self)!r})"


def with_changes(mapping: Mapping[K, V], news: Mapping[K, V]) -> SharedMap[K, V]:
    """A changed copy of any mapping; see SharedMap.changed."""
    if not isinstance(mapping, SharedMap):
        mapping = SharedMap[K, V]().changed(mapping)
    return cast(SharedMap[K, V], mapping).changed(news)
