"""Who gets new requests, and the epoch of that assignment.

In Surge one revision gets them all, but for a canary's share; in place the shares are those of the ready pods. An
assignment moves away from a revision that answers only to one that answers too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from ...api import Mode
from .evidence import Evidence
from .machine import GIVEN_UP, WITH_REQUESTS, State
from .records import Traffic
from .replicas import exchange
from .situation import Situation

Weights = Mapping[str, int]
Drains = tuple[tuple[str, ...], datetime | None]
"""Pods that get no new requests, and since when the last of them."""


def wanted_weights(s: Situation) -> Weights:
    """Percent by revision, sorted by hash; empty while nothing may get requests."""
    if s.progress.mode is Mode.IN_PLACE and s.progress.state not in GIVEN_UP | {State.IDLE, State.DRAINING}:
        return _by_ready_pods(s)
    blue, green = s.progress.blue, s.progress.green
    if s.progress.state in WITH_REQUESTS and s.canary_weight is not None:
        return dict(sorted({str(blue): 100 - s.canary_weight, str(green): s.canary_weight}.items()))
    if s.progress.state in WITH_REQUESTS | {State.DRAINING}:
        return {str(green): 100}
    if blue is None:
        return {}
    return {blue: 100} if _can_take_over(s, blue) else _now(s)


def next_traffic(
    before: Traffic | None, weights: Weights, drains: Drains, now: datetime, evidence: Evidence
) -> Traffic | None:
    """With a later epoch when something changes. Where none is known, because the status is new or was lost, it begins
    with the seconds of the clock and above what any gateway follows: assignments change less than once a second, so
    that this is later than any that was ever made."""
    if not weights:
        return None
    if before is None:
        seen = max((view.epoch for view in evidence.gateways if view.epoch is not None), default=0)
        return Traffic(max(int(now.timestamp()), seen + 1), weights, *drains)
    same = dict(before.weights) == dict(weights) and before.draining == drains[0]
    return replace(before, draining_since=drains[1]) if same else Traffic(before.epoch + 1, weights, *drains)


def most_weight(weights: Weights, before: str | None) -> str | None:
    """The active revision: with equal shares the one that was."""
    return max(weights, key=lambda hash_: (weights[hash_], hash_ == before)) if weights else None


def percentages(counts: Weights) -> dict[str, int]:
    """Counts as whole percent that sum to 100, by the largest remainders; every count above 0 gets 1 at least."""
    total = sum(counts.values())
    floors = {hash_: max(1, count * 100 // total) for hash_, count in counts.items()}
    order = sorted(counts, key=lambda hash_: (-(counts[hash_] * 100 % total), hash_))
    for hash_ in order[: max(0, 100 - sum(floors.values()))]:
        floors[hash_] += 1
    excess = sum(floors.values()) - 100
    if excess > 0:
        floors[max(floors, key=lambda hash_: floors[hash_])] -= excess
    return floors


def _by_ready_pods(s: Situation) -> Weights:
    """Green's count only when it is verified and promoted."""
    ready = dict(s.ready_by_revision())
    if s.progress.state not in WITH_REQUESTS:
        ready.pop(s.progress.green or "", None)
    kept = exchange(s)
    shares = {hash_: min(count, kept.get(hash_, 0)) for hash_, count in ready.items()}
    shares = {hash_: count for hash_, count in shares.items() if count > 0}
    return percentages(shares) if shares else _now(s) or {str(s.progress.blue): 100}


def _can_take_over(s: Situation, blue: str) -> bool:
    """Whether requests may go to blue: it answers, or nobody who has them does, or is to have them, or is to answer."""
    now = _now(s)
    if not now or blue in now or s.progress.mode is Mode.RECREATE or s.blue_ready > 0 or s.wanted == 0:
        return True
    ready = s.ready_by_revision()
    return not any(ready.get(hash_, 0) for hash_ in now)


def _now(s: Situation) -> Weights:
    return {} if s.traffic is None else s.traffic.weights
