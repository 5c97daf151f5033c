"""The old revision's figures before the switch, which green is compared with: those of the last hours, as far as they tell what
comes next.

At rest, blue's requests are counted in intervals of ten minutes. They are tested on the past (a backtest): how far was each
interval from the figures of those before it? Chance explains a part. The rest is drift: traffic changes over a day. Drift makes
figures from before the switch uncertain, however many requests they have: several tell only as much as one would without it.
Of the baselines that can be made (of the last minutes, one interval, several) the one that tells most is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmendpoint_verdicts.shares import Share, more

from .evidence import Figures
from .tails import SLOWEST, Tail

SPANS = (1, 2, 3, 6, 12)
"""Numbers of intervals that a baseline may be made of: FEWEST more of them are kept at least (observe/rollout/intervals.py)."""
FEWEST = 4
"""Tests on the past that tell how far figures drift."""
LEAST = 20.0
"""Independent requests that a baseline with more of them tells as much as, however much blue's figures drift: after one outage of blue
nothing could be said of a revision that fails nearly always."""
DIFFERENT = math.log(20)
"""Evidence that the last minutes are not as the hours before: then only they count."""


@dataclass(frozen=True, slots=True)
class _Baseline:
    """Made of the last `span` intervals, or of the last minutes where that is 0."""

    span: int
    drift: float


def make_baseline(intervals: Sequence[Figures], recent: Figures | None) -> Figures | None:
    """`intervals`: blue's at rest, the latest last. `recent`: of the last minutes; None where nothing was measured yet."""
    past = [figures for figures in intervals if figures.requests > 0]
    now = recent or Figures()
    failed = _choose([figures.failed for figures in past], now.failed)
    if failed is None:
        return recent
    spanned = past[-failed.span :] if failed.span else [now]
    counted = replace(
        now,
        requests=sum(one.requests for one in spanned),
        errors=sum(one.errors for one in spanned),
        drift=failed.drift,
    )
    return counted.with_latencies(lambda name, tail: _tail([one.latency(name) for one in past], tail))


def _tail(past: Sequence[Tail | None], recent: Tail | None) -> Tail | None:
    """All bounds drift as the one that is nearest to the 95th percentile."""
    latest = recent or (past[-1] if past else None)
    if latest is None:
        return None
    alike = [one for one in past if one is not None and one.bounds == latest.bounds]
    place = _nearest(alike)
    if place is None:
        return recent
    now = recent.at(place) if recent is not None else Share()
    found = _choose([Share(one.requests, one.slower[place]) for one in alike], now)
    if found is None:
        return recent
    spanned = alike[-found.span :] if found.span else [latest]
    return Tail(
        sum(one.requests for one in spanned),
        latest.bounds,
        tuple(sum(slower) for slower in zip(*(one.slower for one in spanned), strict=True)),
        (now.clumping,) * len(latest.bounds),
        drift=found.drift,
    )


def _nearest(tails: Sequence[Tail]) -> int | None:
    """The bound that is nearest to the 95th percentile of all together; None where nothing was slower than any."""
    requests = sum(tail.requests for tail in tails)
    slower = [sum(counts) for counts in zip(*(tail.slower for tail in tails), strict=True)]
    near = ((abs(math.log(one / requests / SLOWEST)), place) for place, one in enumerate(slower) if one > 0)
    return min(near)[1] if any(slower) else None


def _choose(past: Sequence[Share], now: Share) -> _Baseline | None:
    """The one that tells most; None where too little is known of the past. `now` fails in clumps, and so did the past."""
    rate = _sum(past).rate
    variance = rate * (1 - rate)
    drifts = {span: _drift(past, span, variance) for span in SPANS}
    last = drifts[1]
    if last is None:
        return None
    worth = {0: _worth(now.requests, now.clumping, last, variance)}
    for span, drift in drifts.items():
        spanned = _sum(past[-span:])
        if drift is not None and not _differ(now, spanned):
            worth[span] = _worth(spanned.requests, now.clumping, drift, variance)
    best = max(worth, key=lambda span: worth[span][0])
    return _Baseline(best, worth[best][1])


def _worth(requests: float, clumping: float, drift: float, variance: float) -> tuple[float, float]:
    """How many independent requests tell as much as these, and how many times fewer that are because of the drift."""
    independent = requests / clumping
    effect = 1 + independent * drift / variance if variance > 0 else 1.0
    effect = min(effect, max(1.0, independent / LEAST))
    return independent / effect, effect


def _drift(past: Sequence[Share], span: int, variance: float) -> float | None:
    """The variance of the share in an interval, from what the `span` intervals before it tell, beyond chance. `variance`: of one
    request. A test weighs as much
    as the requests on both sides of it tell: one request that fails at night says nothing of the day. None where this was seen less
    than FEWEST times."""
    tests = [(one, _sum(past[place - span : place])) for place, one in enumerate(past) if place >= span]
    if len(tests) < FEWEST:
        return None
    weights = [1 / (1 / one.requests + 1 / before.requests) for one, before in tests]
    beyond = sum(
        weight * (one.rate - before.rate) ** 2 - variance
        for weight, (one, before) in zip(weights, tests, strict=True)
    )
    return max(0.0, beyond / sum(weights))


def _differ(now: Share, past: Share) -> bool:
    return max(more(now, past, 0.0), more(past, now, 0.0)) >= DIFFERENT


def _sum(shares: Sequence[Share]) -> Share:
    return Share(sum(one.requests for one in shares), sum(one.hits for one in shares))
