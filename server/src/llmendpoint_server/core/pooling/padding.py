"""Which inputs of a step are computed together. Inputs of one forward pass are padded to the longest of them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MOST_PADDED = 1.25
"""Computed tokens of a pass, for each token of its inputs, at most. A pass has a fixed cost too, so some padding pays."""


def passes(lengths: Sequence[int], most_tokens: int) -> list[list[int]]:
    """Places of `lengths`, one list for each pass, the longest inputs first. A pass computes at most `most_tokens`, padding
    included, or one input."""
    found: list[list[int]] = []
    longest = tokens = 0
    for place in sorted(range(len(lengths)), key=lambda place: (-lengths[place], place)):
        rows = len(found[-1]) + 1 if found else 0
        padded, own = rows * longest, tokens + lengths[place]
        if not found or padded > min(MOST_PADDED * own, most_tokens):
            found.append([])
            longest, tokens = lengths[place], 0
        found[-1].append(place)
        tokens += lengths[place]
    return found
