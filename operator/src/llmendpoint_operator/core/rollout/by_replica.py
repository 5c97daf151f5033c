"""Counts of a window by replica: they tell failures of one replica from failures of all.

A replica is a clump: of a bad accelerator, a bad node, or a caller whose prompts all go there. From its counts follow only
how much failures clump, and words: no figure of the revision is a sum of these. Gateways count requests by the pod's name,
and engines their latencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from llmendpoint_verdicts.shares import CELL_REQUESTS, FIRST_CLUMP

from .cells import FEWEST, Cells
from .histograms import Histogram, together

MOST_REPLICAS = 50
"""Of one revision are counted: those that come first."""
Key = tuple[str, str]
"""Revision, and the name of what is counted."""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Each replica with enough requests is one of the cells. `keys`: what is counted, as in Scales."""

    keys: tuple[float, ...] = ()
    cells: Cells | None = None

    def clumping(self, key: float) -> float:
        """Of the hits of one kind: how many requests tell as much as one that is independent. 1 where too few replicas
        tell anything: that alone is no reason to doubt the figures. FIRST_CLUMP at most: a replica that goes on failing must
        not keep its users waiting for a verdict for ever."""
        if self.cells is None or key not in self.keys:
            return 1.0
        return min(FIRST_CLUMP, max(1.0, self.cells.spread(self.keys.index(key))))


NO_REPLICAS = Replicas()


class ByReplica:
    """Of one endpoint and one window. Requests are a histogram too, as in core/rollout/measurements.py."""

    def __init__(self) -> None:
        self._counted: dict[Key, dict[str, Histogram]] = {}
        self._changed: set[Key] = set()
        self._found: dict[Key, Replicas] = {}
        self._worst: dict[Key, tuple[str, int] | None] = {}

    def add(self, key: Key, replica: str, new: Histogram) -> None:
        """What has come of one replica."""
        counted = self._counted.setdefault(key, {})
        before = counted.get(replica)
        if before is None and len(counted) >= MOST_REPLICAS:
            return
        counted[replica] = new if before is None else together(before, new)
        self._changed.add(key)

    def sampled(self) -> None:
        """All sources have been read: what `of` and `worst` tell until the next time."""
        for key in self._changed:
            self._found[key] = make_replicas(self._counted[key])
            self._worst[key] = find_worst(self._counted[key])
        self._changed.clear()

    def of(self, key: Key) -> Replicas:
        """As of the last sample."""
        return self._found.get(key, NO_REPLICAS)

    def worst(self, key: Key) -> tuple[str, int] | None:
        """As of the last sample, see `find_worst`."""
        return self._worst.get(key)


def find_worst(counted: Mapping[str, Histogram]) -> tuple[str, int] | None:
    """The replica with the most hits of the first kind, and how many. None where none has any, or fewer than two replicas
    got requests."""
    if sum(one.count > 0 for one in counted.values()) < 2:
        return None
    hits, replica = max((one.count - one.counts[0], replica) for replica, one in counted.items())
    return (replica, round(hits)) if hits > 0 else None


def make_replicas(counted: Mapping[str, Histogram]) -> Replicas:
    """Of those with enough requests that count the same as the first of them by name."""
    if len(counted) < FEWEST:
        return NO_REPLICAS
    known = [one for _, one in sorted(counted.items()) if one.count >= CELL_REQUESTS]
    cells = [(one.count, one.above) for one in known if one.bounds == known[0].bounds]
    if len(cells) < FEWEST:
        return NO_REPLICAS
    keys = known[0].bounds[:-1]
    nothing = (0.0,) * len(keys)
    return Replicas(
        keys, reduce(lambda all_, cell: all_.with_cell(*cell), cells, Cells(0, 0.0, nothing, nothing))
    )
