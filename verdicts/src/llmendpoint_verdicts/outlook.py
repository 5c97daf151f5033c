"""How many more requests a verdict takes if the requests go on as now, and which change so many requests would show.

A forecast follows the expected counts: of n more requests n times the rate are hits. The evidence is that of
shares.above, below, more and less, so a forecast and a verdict cannot disagree about the arithmetic. Chance makes the real number
smaller or larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from .shares import FIRST_CLUMP, Required, Share, above, below, less, more

PRIOR_HITS, PRIOR_REQUESTS = 0.5, 50.0
"""Counted beside what was seen, so that few requests are not taken for the truth: half a hit in fifty requests."""
SURE = 1.645
"""Of a normal distribution: 5 % lie above. What is said to be seen is seen in 19 of 20 rollouts."""
TOLERANCE = 0.02
"""Of a forecast, as a share of it; or one request."""

HALVINGS = 20
"""Of the shares between two: to one in a million."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """How many more requests show that the limit is broken, and that it is kept. 0: it is shown; None: not foreseen."""

    broken: int | None
    kept: int | None

    @property
    def first(self) -> int | None:
        """Requests until one of both."""
        return min((n for n in (self.broken, self.kept) if n is not None), default=None)


def expected_rate(share: Share) -> float:
    """The share (0..1) to expect of further requests."""
    return (min(share.hits, share.requests) + PRIOR_HITS) / (share.requests + PRIOR_REQUESTS)


def requests_to_show(
    share: Share, limit: float, margin: float, required: Required, *, most: int, rate: float | None = None,
    cell: float = FIRST_CLUMP,
) -> Outlook:  # fmt: skip
    """For one share with a limit (0..1). `rate`: the share of further requests, by default `expected_rate`. `most`: a forecast
    of more requests is None. `cell`: requests in each of the cells by which the clumping is measured."""
    going = _Going(share, expected_rate(share) if rate is None else rate, cell)
    allowed = limit + margin
    if limit <= 0:
        first_hit = math.ceil(1 / rate) if rate else most + 1
        broken = 0 if share.hits > 0 else (first_hit if first_hit <= most else None)
    else:
        broken = _first(lambda n: above(going.after(n), limit), required.broken, most, going.rate > limit)
    if allowed >= 1:
        return Outlook(broken, 0)
    return Outlook(
        broken, _first(lambda n: below(going.after(n), allowed), required.kept, most, going.rate < allowed)
    )


def requests_to_compare(
    green: Share, blue: Share, increase: float, margin: float, required: Required, *, most: int, beside: float,
    rates: tuple[float, float] | None = None, cell: float = FIRST_CLUMP,
) -> Outlook:  # fmt: skip
    """For two shares: requests of green. `increase` (0..1): by how much green's may be above blue's. `beside`: requests that
    blue gets for each one of green's, 0 if it gets none any more. `rates`: the shares of further requests of both."""
    ours, theirs = rates or (expected_rate(green), expected_rate(blue))
    g, b, allowed = _Going(green, ours, cell), _Going(blue, theirs, cell), increase + margin
    return Outlook(
        _first(
            lambda n: more(g.after(n), b.after(n * beside), increase),
            required.broken,
            most,
            ours > theirs + increase,
        ),
        _first(
            lambda n: less(g.after(n), b.after(n * beside), allowed),
            required.kept,
            most,
            ours < theirs + allowed,
        ),
    )


def smallest_seen(requests: float, limit: float, required: float, clumping: float = 1.0) -> float | None:
    """The smallest share (0..1) of so many requests that shows, in 19 of 20 rollouts, that it is above `limit`. None if no
    share does."""
    shown = _smallest(lambda rate: above(Share(requests, rate * requests, clumping), limit), limit, required)
    return None if shown is None else _surely(shown, requests / clumping)


def smallest_increase_seen(
    green: float, blue: Share, increase: float, required: float, clumping: float = 1.0
) -> float | None:
    """The smallest share (0..1) of `green` requests that shows, in 19 of 20 rollouts, that it is above blue's + `increase`. Both
    shares vary by chance: blue's may be high, and then green's has to be higher. The two are independent of each other."""

    def shown_above(old: Share) -> float | None:
        return _smallest(
            lambda rate: more(Share(green, rate * green, clumping), old, increase),
            min(1.0, old.rate + increase),
            required,
        )

    shown = shown_above(blue)
    if shown is None or blue.requests <= 0:
        return shown
    high = shown_above(replace(blue, hits=blue.requests * _surely(blue.rate, blue.independent[0])))
    if high is None:
        return None
    green_low, blue_high = _surely(shown, green / clumping) - shown, high - shown
    return min(1.0, shown + math.hypot(green_low, blue_high))


class _Going:
    """A share that grows at a rate. `cell`: requests in each cell. Clumps that were only assumed, because few cells were
    seen, are assumed less with each cell more; those that were measured stay."""

    def __init__(self, share: Share, rate: float, cell: float) -> None:
        self.share, self.rate = share, rate
        self._unseen = FIRST_CLUMP * max(cell, 1.0)
        assumed = min(FIRST_CLUMP, self._unseen / share.requests if share.requests > 0 else FIRST_CLUMP)
        self._measured = share.clumping if share.clumping > 1.01 * assumed else 1.0

    def after(self, more_requests: float) -> Share:
        """As it will be."""
        if more_requests <= 0:
            return self.share
        requests = self.share.requests + more_requests
        hits = self.share.hits + more_requests * self.rate
        return Share(requests, hits, max(self._measured, min(FIRST_CLUMP, self._unseen / requests)))


def _first(evidence: Callable[[float], float], required: float, most: int, growing: bool) -> int | None:
    """The first number of requests, up to `most`, with so much evidence. With many requests it grows along a straight line.
    So each try is where that line, through the last try that was too few, or the line between both ends crosses `required`."""
    low, high = 0, most
    at_low = evidence(0) - required
    if at_low >= 0:
        return 0
    if not growing or (at_high := evidence(most) - required) < 0:
        return None
    while high - low > max(1.0, TOLERANCE * high):
        step = (high - low) * at_low / (at_low - at_high)
        tried = min(max(low + math.ceil(step), low + 1), high - 1)
        found = evidence(tried) - required
        if found >= 0:
            high, at_high = tried, found
        else:
            low, at_low = tried, found
    return high


def _smallest(evidence: Callable[[float], float], low: float, required: float) -> float | None:
    high = 1.0
    if evidence(high) < required:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if evidence(middle) >= required else (middle, high)
    return high


def _surely(shown: float, requests: float) -> float:
    """The share whose counts are below `shown` in one of 20 rollouts: the upper end of Wilson's interval (1927)."""
    z2 = SURE**2 / requests
    centre = shown + z2 / 2
    return min(1.0, (centre + math.sqrt(z2 * (shown * (1 - shown) + z2 / 4))) / (1 + z2))
