"""When to look again for what only time brings."""

from __future__ import annotations

from collections.abc import Iterator

from ...api import Mode
from .evidence import ACKNOWLEDGE_SECONDS
from .machine import BEFORE_THE_SWITCH, GIVEN_UP, State
from .observation import measuring_blue, observing
from .occurrences import deadline_in, held, lost_in, unschedulable_since
from .prospects import promised_for
from .situation import LOST_SECONDS, Situation


def waits(s: Situation) -> Iterator[float]:
    """Seconds until time alone may bring something; none at rest."""
    progress, rollout = s.progress, s.spec.rollout
    if progress.state in BEFORE_THE_SWITCH or (
        progress.state is State.SWITCHING and progress.mode is Mode.IN_PLACE
    ):
        if progress.blue is not None and progress.state is not State.AWAITING_PROMOTION:
            yield 0.0 if held(s) else deadline_in(s)
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
    if progress.state is State.DRAINING or s.others():
        yield s.remaining(s.switched_at, rollout.scale_down_delay)
    if progress.state in GIVEN_UP and s.live(progress.green) > 0:
        yield s.remaining(progress.state_since, rollout.abort_scale_down_delay)
