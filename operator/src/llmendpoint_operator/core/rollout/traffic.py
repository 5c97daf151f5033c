"""The traffic assignment: which revisions get new requests, and its epoch.

In Surge one revision gets all requests, apart from a canary's share and what blue keeps for comparison. In place the shares follow the ready
pods. An assignment moves away from a revision that answers only to another one that answers.
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
"""Names of the pods that get no new requests, and when the last of them was added."""


def wanted_weights(s: Situation) -> Weights:
    """Percent by revision, sorted by hash; empty while no revision may get requests."""
    if s.progress.mode is Mode.IN_PLACE and s.progress.state not in GIVEN_UP | {State.IDLE, State.DRAINING}:
        return _by_ready_pods(s)
    blue, green = s.progress.blue, s.progress.green
    share = s.green_share
    if s.progress.state in WITH_REQUESTS and share < 100:
        return dict(sorted({str(blue): 100 - share, str(green): share}.items()))
    if s.progress.state in WITH_REQUESTS | {State.DRAINING}:
        return {str(green): 100}
    if blue is None:
        return {}
    return {blue: 100} if _can_take_over(s, blue) else _now(s)


def next_traffic(
    before: Traffic | None, weights: Weights, drains: Drains, now: datetime, evidence: Evidence
) -> Traffic | None:
    """The next assignment; its epoch is later if something changed. Without a known one (the status is new or
    was lost) the epoch starts with the clock's seconds, and above any that a gateway follows. Assignments
    change less than once a second, so that is later than every earlier epoch."""
    if not weights:
        return None
    if before is None:
        seen = max((view.epoch for view in evidence.gateways if view.epoch is not None), default=0)
        return Traffic(max(int(now.timestamp()), seen + 1), weights, *drains)
    same = dict(before.weights) == dict(weights) and before.draining == drains[0]
    return replace(before, draining_since=drains[1]) if same else Traffic(before.epoch + 1, weights, *drains)


def most_weight(weights: Weights, before: str | None) -> str | None:
    """The active revision: the one with the largest share; on a tie, the one that was active."""
    return max(weights, key=lambda hash_: (weights[hash_], hash_ == before)) if weights else None


def percentages(counts: Weights) -> dict[str, int]:
    """Counts as whole percent with the sum 100, by largest remainders; every count above 0 gets at least
    1."""
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
    """Shares by ready pods. Green's count only once it is verified and promoted."""
    ready = dict(s.ready_by_revision())
    if s.progress.state not in WITH_REQUESTS:
        ready.pop(s.progress.green or "", None)
    kept = exchange(s)
    shares = {hash_: min(count, kept.get(hash_, 0)) for hash_, count in ready.items()}
    shares = {hash_: count for hash_, count in shares.items() if count > 0}
    return percentages(shares) if shares else _now(s) or {str(s.progress.blue): 100}


def _can_take_over(s: Situation, blue: str) -> bool:
    """Whether requests may go to blue: it answers or has a share, or the revisions with requests do not
    answer."""
    now = _now(s)
    if not now or blue in now or s.progress.mode is Mode.RECREATE or s.blue_ready > 0 or s.wanted == 0:
        return True
    ready = s.ready_by_revision()
    return not any(ready.get(hash_, 0) for hash_ in now)


def _now(s: Situation) -> Weights:
    return {} if s.traffic is None else s.traffic.weights
