"""The places for LoRA adapters on the device: which adapter has which, and which are free.

An adapter is loaded into a free place while others serve, and gets its name when its weights are there. One that is unloaded, or
replaced by another of its name, keeps its place until no request needs it. So there is one place more than there may be
adapters: one can be replaced while its requests run.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

NO_PLACE = -1
"""Of what runs without an adapter."""


class PlacesFull(Exception):
    """No place is free. The text says why."""


@dataclass(frozen=True, slots=True)
class Placed:
    """`generation`: the number of the load, of all loads: the same name may get other weights."""

    place: int
    generation: int


class Places:
    """For `most` adapters. Each place is free, being filled, an adapter's, or left by one whose requests still run."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._free = set(range(most + 1))
        self._filling: dict[int, str] = {}
        self._named: dict[str, Placed] = {}
        self._left: set[int] = set()
        self._loads = 0

    @property
    def count(self) -> int:
        return self.most + 1

    @property
    def names(self) -> list[str]:
        return sorted(self._named)

    def find(self, name: str) -> Placed | None:
        return self._named.get(name)

    def begin(self, name: str) -> int:
        """A free place to fill, the lowest. Raises PlacesFull."""
        names = {*self._named, *self._filling.values()}
        if name not in names and len(names) >= self.most:
            raise PlacesFull(f"there are {len(names)} adapters, as many as --max-loras allows")
        if not self._free:
            raise PlacesFull(
                "requests still run with adapters that were unloaded or replaced; try again when they have ended"
            )
        place = min(self._free)
        self._free.remove(place)
        self._filling[place] = name
        return place

    def give_up(self, place: int) -> None:
        """It could not be filled."""
        del self._filling[place]
        self._free.add(place)

    def finish(self, place: int) -> Placed:
        """It is filled. From now on its name means it."""
        name = self._filling.pop(place)
        self.unload(name)
        self._loads += 1
        placed = self._named[name] = Placed(place, self._loads)
        return placed

    def unload(self, name: str) -> bool:
        """False if no adapter has this name."""
        placed = self._named.pop(name, None)
        if placed is not None:
            self._left.add(placed.place)
        return placed is not None

    def settle(self, needed: Set[int]) -> None:
        """Free what was left, except the places that requests still need."""
        free = self._left - needed
        self._left -= free
        self._free |= free
