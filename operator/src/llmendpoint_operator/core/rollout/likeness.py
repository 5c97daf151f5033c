"""Whether a new revision's answers to one prompt differ from the old revision's more than those differ from each other.

A permutation test, exact and one-sided. If both revisions answer alike, each division of all answers into two groups of these
sizes is as likely as the one that was seen. So the share of the divisions that separate the groups as much is the chance of the
finding: a test that rejects at a chance of `a` rejects two revisions that answer alike in a share of `a` at most, with any
number of answers and any kind of similarity. Sources: Fisher, "The Design of Experiments" (1935), for the test; Székely and
Rizzo, "Testing for equal distributions in high dimension" (2004), for groups that are compared by the means of their distances
alone; Phipson and Smyth, "Permutation p-values should never be zero" (2010), for counting the seen division, too.

All divisions are counted, at most 184,756 for ten answers each. So the result does not depend on the order of the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TypeVar

T = TypeVar("T")

SCALE = 1_000_000
"""Similarities are counted in millionths: sums of whole numbers are equal where they should be, in any order."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """Of a new revision's answers to an old one's. Similarities are means over all pairs, from 0 to 1."""

    to_old: float
    """Of a new answer and an old one."""
    among_old: float
    """Of two old answers."""
    chance: float
    """Share of the divisions that separate the answers as much as they are."""


def weigh(old: Sequence[T], new: Sequence[T], similarity: Callable[[T, T], float]) -> Likeness:
    """`similarity`: symmetric, from 0 to 1. Needs two old answers and one new one at least."""
    count, total = len(old), len(old) + len(new)
    if count < 2 or not new:
        raise ValueError(
            f"{count} old and {len(new)} new answers: two and one are the fewest that can be compared"
        )
    pairs = _pairs([*old, *new], similarity)
    within = sum(pairs[i][j] for i, j in combinations(range(count), 2))
    between = sum(pairs[i][j] for i in range(count) for j in range(count, total))
    to_old, among_old = between / (count * len(new)), within / comb(count, 2)
    return Likeness(to_old / SCALE, among_old / SCALE, _chance(pairs, count))


def finest(old: int, new: int) -> float:
    """The chance of the clearest finding of all with so many answers: both revisions always answer the same, but not alike.
    Two divisions separate these answers: the one that was seen, and its mirror image."""
    return min(1.0, 2 / comb(old + new, old))


def _pairs(answers: Sequence[T], similarity: Callable[[T, T], float]) -> list[list[int]]:
    """The similarity of each to each, and 0 to itself."""
    pairs = [[0] * len(answers) for _ in answers]
    for i, j in combinations(range(len(answers)), 2):
        pairs[i][j] = pairs[j][i] = round(SCALE * similarity(answers[i], answers[j]))
    return pairs


def _chance(pairs: Sequence[Sequence[int]], count: int) -> float:
    """Share of the divisions whose separation is at least that of the first `count` from the rest.

    The separation is the mean similarity within the first group less the mean similarity of the two groups. It grows with
    2·(N-1)·W - (n-1)·R, where N answers are divided, n of them into the first group, W is the sum over the pairs within
    that group, and R is the sum over its members of their similarities to all others. So each member and each pair of
    members adds a part of its own, and a division costs a few additions.
    """
    total = len(pairs)
    own = [-(count - 1) * sum(row) for row in pairs]
    later = [[2 * (total - 1) * pairs[i][j] for j in range(i + 1, total)] for i in range(total)]
    seen = sum(own[:count]) + sum(sum(later[i][: count - 1 - i]) for i in range(count))
    return _reaching(seen, own, later, count) / comb(total, count)


def _reaching(needed: int, own: Sequence[int], later: Sequence[Sequence[int]], left: int) -> int:
    """How many ways to choose `left` members add `needed` or more. `own`: what each adds, pairs with the chosen ones included.
    `later`: what each adds together with each one after it."""
    if left == 1:
        return sum(one >= needed for one in own)
    found = 0
    for i in range(len(own) - left + 1):
        beside = [one + pair for one, pair in zip(own[i + 1 :], later[i], strict=True)]
        found += _reaching(needed - own[i], beside, later[i + 1 :], left - 1)
    return found
