"""Counts of a window cut into cells of a few seconds: what tells clumps of failures from failures one by one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmendpoint_verdicts.shares import clumping

CELL_REQUESTS = 10
"""At least so many in a cell: with one or two in each no clump could be seen."""


@dataclass(frozen=True, slots=True)
class Cells:
    """`number` of cells with `requests` together. By what is counted: the sum of the `hits`, and `squares`, the sum over
    the cells of hits²/requests. Both only grow, so a window is the difference of two of these."""

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

    def clumping(self, key: float, before: Cells | None = None) -> float:
        """Of the hits of one kind: how many requests tell as much as one that is independent. With `before`, of the cells
        that came since then."""
        start = before or _NONE
        return clumping(
            self.requests - start.requests,
            self.hits.get(key, 0.0) - start.hits.get(key, 0.0),
            self.squares.get(key, 0.0) - start.squares.get(key, 0.0),
            self.number - start.number,
        )


_NONE = Cells()
