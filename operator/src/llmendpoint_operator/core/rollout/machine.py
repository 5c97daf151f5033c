"""The states of a rollout and how they follow each other.

Blue is the revision that requests come from and go back to, green the one that shall get them.

    Idle -> Provisioning -> Warming -> Verifying -> AwaitingPromotion -> Switching -> Observing -> Draining -> Idle
                                                                             (back) RollingBack -> RolledBack

Each row of MOVES answers for one state: its events are looked for in this order, the first that has happened is taken,
and what is not in the row does not move it. What green has reached comes before its deadline: an operator that was
away finds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ...api import RolloutState

State = RolloutState


class Event(StrEnum):
    """What may have happened; occurrences.py says when it has."""

    NEW_TARGET = "NewTarget"
    """The spec asks for a revision that this rollout is not about."""
    REVERTED = "Reverted"
    """The spec asks for blue again, or for nothing that can be made."""
    ABORTED = "Aborted"
    """Somebody asked to give green up."""
    OVERDUE = "Overdue"
    """No progress within progressDeadlineSeconds."""
    NO_ROOM = "NoRoom"
    """A pod of green stays unschedulable beside blue's."""
    SCHEDULED = "Scheduled"
    """Green's pods have their nodes."""
    WARM = "Warm"
    """As many pods of green are ready as are needed."""
    COLD = "Cold"
    """They are not any more."""
    VERIFIED = "Verified"
    """The prompts were answered as expected."""
    UNVERIFIED = "Unverified"
    """One was not."""
    PROMOTED = "Promoted"
    """By itself, or by hand."""
    WAVE_READY = "WaveReady"
    """In place: the new pods of this wave are ready."""
    ACKNOWLEDGED = "Acknowledged"
    """All gateways follow the assignment, or have had their time."""
    BREACHED = "Breached"
    """Green breaks a limit, or has crashed."""
    STEP_PASSED = "StepPassed"
    """A canary step was good."""
    STEP_CHANGED = "StepChanged"
    """The canary's steps were edited, and the one it is at has another weight."""
    CONFIRMED = "Confirmed"
    """The observation was good, or there is nothing to observe."""
    DRAINED = "Drained"
    """Blue is not needed any more."""
    RESTORED = "Restored"
    """Blue has all requests again."""


_SUPERSEDED = {Event.NEW_TARGET: State.PROVISIONING}
_BEFORE = {**_SUPERSEDED, Event.REVERTED: State.IDLE}
_AFTER = {
    **_SUPERSEDED,
    Event.REVERTED: State.ROLLING_BACK,
    Event.ABORTED: State.ROLLING_BACK,
    Event.BREACHED: State.ROLLING_BACK,
}

MOVES: Mapping[State, Mapping[Event, State]] = {
    State.IDLE: _SUPERSEDED,
    State.PROVISIONING: {
        **_BEFORE,
        Event.ABORTED: State.ROLLING_BACK,
        Event.SCHEDULED: State.WARMING,
        Event.NO_ROOM: State.PROVISIONING,
        Event.OVERDUE: State.ROLLING_BACK,
    },
    State.WARMING: {
        **_BEFORE,
        Event.ABORTED: State.ROLLING_BACK,
        Event.WARM: State.VERIFYING,
        Event.NO_ROOM: State.PROVISIONING,
        Event.OVERDUE: State.ROLLING_BACK,
    },
    State.VERIFYING: {
        **_BEFORE,
        Event.ABORTED: State.ROLLING_BACK,
        Event.UNVERIFIED: State.ROLLING_BACK,
        Event.COLD: State.WARMING,
        Event.VERIFIED: State.AWAITING_PROMOTION,
        Event.OVERDUE: State.ROLLING_BACK,
    },
    State.AWAITING_PROMOTION: {
        **_BEFORE,
        Event.ABORTED: State.ROLLING_BACK,
        Event.COLD: State.WARMING,
        Event.PROMOTED: State.SWITCHING,
    },
    State.SWITCHING: {
        **_AFTER,
        Event.STEP_CHANGED: State.SWITCHING,
        Event.WAVE_READY: State.SWITCHING,
        Event.ACKNOWLEDGED: State.OBSERVING,
        Event.OVERDUE: State.ROLLING_BACK,
    },
    State.OBSERVING: {
        **_AFTER,
        Event.STEP_CHANGED: State.SWITCHING,
        Event.STEP_PASSED: State.SWITCHING,
        Event.CONFIRMED: State.DRAINING,
    },
    State.DRAINING: {
        **_SUPERSEDED,
        Event.REVERTED: State.PROVISIONING,
        Event.BREACHED: State.ROLLING_BACK,
        Event.DRAINED: State.IDLE,
    },
    State.ROLLING_BACK: {
        **_SUPERSEDED,
        Event.RESTORED: State.ROLLED_BACK,
    },
    State.ROLLED_BACK: {
        **_SUPERSEDED,
        Event.REVERTED: State.IDLE,
    },
}

BEFORE_THE_SWITCH = frozenset(
    {State.PROVISIONING, State.WARMING, State.VERIFYING, State.AWAITING_PROMOTION}
)  # fmt: skip
"""Green gets no requests yet; blue may be measured, so that there is something to compare green with."""
WITH_REQUESTS = frozenset({State.SWITCHING, State.OBSERVING})
"""Green gets requests and is measured, and blue is there to go back to."""
AT_REST = frozenset({State.IDLE, State.ROLLED_BACK})
"""Nothing goes on."""
GIVEN_UP = frozenset({State.ROLLING_BACK, State.ROLLED_BACK})
