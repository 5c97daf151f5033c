"""Counts of a window cut into cells of a few seconds: what tells clumps of failures from failures one by one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import add

from llmendpoint_verdicts.shares import clumping, design_effect

from .histograms import Histogram

SCALES, TIMES = 5, 4
"""Sizes of cells, and how many of one size make one of the next: what comes in longer clumps than a cell shows itself in
the larger ones."""
FEWEST = 4
"""Larger cells, or replicas, that tell anything."""
DOUBT = 2.0
"""Standard errors by which larger cells must clump more than the smallest before they count: chance makes a few cells
differ, and the smallest are many. The same for replicas, which are few as well."""


Counted = tuple[float, ...]
"""By what is counted, in the order of the keys."""


@dataclass(frozen=True, slots=True)
class Cells:
    """`number` of cells of one size with `requests` together. By what is counted: the sum of the `hits`, and `squares`, the
    sum over the cells of hits²/requests."""

    number: int
    requests: float
    hits: Counted
    squares: Counted

    def with_cell(self, requests: float, hits: Counted) -> Cells:
        """One more."""
        return Cells(
            self.number + 1,
            self.requests + requests,
            _sum(self.hits, hits),
            tuple([square + count * count / requests for square, count in zip(self.squares, hits, strict=True)]),
        )  # fmt: skip

    def clumping(self, place: int) -> float:
        """Of the hits of one kind, in cells of this size."""
        return clumping(self.requests, self.hits[place], self.squares[place], self.number)

    def spread(self, place: int) -> float:
        """The same of FEWEST cells or more, less what chance may make of so few."""
        doubt = 1 + DOUBT * math.sqrt(2 / (self.number - 1))
        return design_effect(self.requests, self.hits[place], self.squares[place], self.number) / doubt


Part = tuple[int, float, Counted]
"""Of a cell: how many smaller cells, requests, and hits."""


@dataclass(frozen=True, slots=True)
class Scales:
    """The same requests in cells of several sizes: `sizes[0]` are the smallest, and TIMES of one size make one of the next.
    `keys`: what is counted. `parts`: by size, the next larger cell as far as it is filled."""

    keys: tuple[float, ...] = ()
    sizes: tuple[Cells, ...] = ()
    parts: tuple[Part, ...] = ()

    def with_cell(self, cell: Histogram) -> Scales:
        """One more of the smallest: how many requests are above each bound. Where the bounds are others, all begins anew."""
        keys, requests, hits = cell.bounds[:-1], cell.count, cell.above
        nothing = (0.0,) * len(keys)
        sizes, parts = (list(self.sizes), list(self.parts)) if keys == self.keys else ([], [])
        for size in range(SCALES):
            if size == len(sizes):
                sizes.append(Cells(0, 0.0, nothing, nothing))
                parts.append((0, 0.0, nothing))
            sizes[size] = sizes[size].with_cell(requests, hits)
            number, before, already = parts[size]
            requests, hits = requests + before, _sum(already, hits)
            if number + 1 < TIMES:
                parts[size] = (number + 1, requests, hits)
                break
            parts[size] = (0, 0.0, nothing)
        return Scales(keys, tuple(sizes), tuple(parts))

    def clumping(self, key: float) -> float:
        """Of the hits of one kind: how many requests tell as much as one that is independent. The size of cells at which
        they clump most decides."""
        try:
            place = self.keys.index(key)
        except ValueError:
            return clumping(0.0, 0.0, 0.0, 0.0)
        worst = self.sizes[0].clumping(place)
        for cells in self.sizes[1:]:
            if cells.number >= FEWEST:
                worst = max(worst, cells.spread(place))
        return worst


def _sum(one: Counted, other: Counted) -> Counted:
    return tuple(map(add, one, other))
