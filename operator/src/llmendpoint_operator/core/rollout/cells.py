"""Counts of a window cut into cells of a few seconds: what tells clumps of failures from failures one by one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from llmendpoint_verdicts.shares import clumping

CELL_REQUESTS = 10
"""At least so many in a cell: with one or two in each no clump could be seen."""
SCALES, TIMES = 5, 4
"""Sizes of cells, and how many of one size make one of the next: what comes in longer clumps than a cell shows itself in
the larger ones."""
FEWEST = 4
"""Larger cells that tell anything."""
DOUBT = 2.0
"""Standard errors by which larger cells must clump more than the smallest before they count: chance makes a few cells
differ, and the smallest are many."""


@dataclass(frozen=True, slots=True)
class Cells:
    """`number` of cells of one size with `requests` together. By what is counted: the sum of the `hits`, and `squares`, the
    sum over the cells of hits²/requests."""

    number: float = 0.0
    requests: float = 0.0
    hits: Mapping[float, float] = field(default_factory=dict)
    squares: Mapping[float, float] = field(default_factory=dict)

    def with_cell(self, requests: float, hits: Mapping[float, float]) -> Cells:
        """One more. What has no hits in it needs no entry."""
        some = {key: count for key, count in hits.items() if count > 0}
        return Cells(
            self.number + 1,
            self.requests + requests,
            {**self.hits, **{key: self.hits.get(key, 0.0) + count for key, count in some.items()}},
            {
                **self.squares,
                **{key: self.squares.get(key, 0.0) + count**2 / requests for key, count in some.items()},
            },
        )

    def clumping(self, key: float) -> float:
        """Of the hits of one kind, in cells of this size."""
        return clumping(self.requests, self.hits.get(key, 0.0), self.squares.get(key, 0.0), self.number)


_NONE = Cells()


Part = tuple[int, float, Mapping[float, float]]
"""Of a cell: how many smaller cells, requests, and hits."""
_EMPTY: Part = (0, 0.0, {})


@dataclass(frozen=True, slots=True)
class Scales:
    """The same requests in cells of several sizes: `sizes[0]` are the smallest, and TIMES of one size make one of the next.
    `parts`: by size, the next larger cell as far as it is filled."""

    sizes: tuple[Cells, ...] = ()
    parts: tuple[Part, ...] = ()

    def with_cell(self, requests: float, hits: Mapping[float, float]) -> Scales:
        """One more of the smallest."""
        sizes, parts = list(self.sizes), list(self.parts)
        for size in range(SCALES):
            if size == len(sizes):
                sizes.append(_NONE)
                parts.append(_EMPTY)
            sizes[size] = sizes[size].with_cell(requests, hits)
            number, before, counted = parts[size]
            requests += before
            hits = {key: count + counted.get(key, 0.0) for key, count in hits.items()}
            if number + 1 < TIMES:
                parts[size] = (number + 1, requests, hits)
                break
            parts[size] = _EMPTY
        return Scales(tuple(sizes), tuple(parts))

    def clumping(self, key: float) -> float:
        """Of the hits of one kind: how many requests tell as much as one that is independent. The size of cells at which
        they clump most decides."""
        worst = (self.sizes[0] if self.sizes else _NONE).clumping(key)
        for cells in self.sizes[1:]:
            if cells.number >= FEWEST:
                doubt = 1 + DOUBT * math.sqrt(2 / (cells.number - 1))
                worst = max(worst, cells.clumping(key) / doubt)
        return worst
