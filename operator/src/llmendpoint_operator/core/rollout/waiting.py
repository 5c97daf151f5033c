"""Remaining times: until green is overdue or lost, and until time alone may change the decision."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...api import Mode
from .evidence import ACKNOWLEDGE_SECONDS
from .machine import BEFORE_THE_SWITCH, GIVEN_UP, WITH_REQUESTS, State
from .observation import account_in, measuring_blue, observing
from .places import held, unschedulable_since
from .prospects import promised_for
from .situation import LOST_SECONDS, Situation


def waits(s: Situation) -> Iterator[float]:
    """Seconds until time alone may change the decision; none at rest."""
    progress, rollout = s.progress, s.spec.rollout
    if progress.state in BEFORE_THE_SWITCH or (
        progress.state is State.SWITCHING and progress.mode is Mode.IN_PLACE
    ):
        if progress.blue is not None and progress.state is not State.AWAITING_PROMOTION:
            yield 0.0 if held(s) else deadline_in(s)
        if progress.state is State.WARMING:
            yield s.adapters_awaited
        since = unschedulable_since(s)
        if since is not None:
            yield s.remaining(since, rollout.unschedulable_seconds)
        if s.unplaced and s.blue_ready == 0 and not s.blue_lost:
            yield float(LOST_SECONDS)
        promises = (s.snapshot.observed.evidence.told.get(str(pod["metadata"]["name"])) for pod in s.unplaced)
        yield from (promised_for(told, s.now) for told in promises if told is not None)
    if progress.state is State.AWAITING_PROMOTION and rollout.promotion == "Auto":
        yield measuring_blue(s)
    if progress.state in (State.SWITCHING, State.ROLLING_BACK):
        yield s.remaining(progress.state_since, ACKNOWLEDGE_SECONDS)
    if (seconds := lost_in(s)) is not None:
        yield seconds
    if progress.state is State.OBSERVING:
        yield observing(s).seconds
        yield account_in(s) or 0.0
    if progress.state is State.DRAINING or s.others():
        yield s.remaining(s.switched_at, rollout.scale_down_delay)
    if progress.state in GIVEN_UP and s.live(progress.green) > 0:
        yield s.remaining(progress.state_since, rollout.abort_scale_down_delay)


def deadline_in(s: Situation) -> float:
    """Seconds until green is overdue. A verification has progressDeadlineSeconds of its own. Verifying and
    making room are work of the operator, so this process must also have done them for that long: downtime of
    the operator does not count."""
    progress, evidence, deadline = s.progress, s.snapshot.observed.evidence, s.spec.progress_deadline_seconds
    if progress.state is State.VERIFYING:
        return max(s.remaining(progress.state_since, deadline), deadline - evidence.verifying)
    waited = math.inf if progress.mode is Mode.SURGE else evidence.watched
    return max(s.remaining(progress.progress_since, deadline), deadline - waited)


def lost_in(s: Situation) -> float | None:
    """Seconds until green counts as lost because none of its pods is ready while some of blue's are; None if
    that is not so."""
    if s.lost_while_draining:
        return s.remaining(s.green_lost_since, LOST_SECONDS)
    if s.progress.state not in WITH_REQUESTS or s.green_ready > 0 or s.blue_ready == 0:
        return None
    return s.remaining(s.waking_since, s.spec.progress_deadline_seconds)
