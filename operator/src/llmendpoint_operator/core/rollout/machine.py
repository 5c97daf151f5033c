"""The states of a rollout, and the moves between them.

Blue is the revision to roll back to; green is the new revision.

    Idle -> Provisioning -> Warming -> Verifying -> AwaitingPromotion -> Switching -> Observing -> Draining -> Idle
                                                                             (back) RollingBack -> RolledBack

Each row of MOVES lists the events that matter in one state. They are checked in the order of the row, and the
first that has happened is taken. Green's progress is checked before its deadline, because an operator that
was down finds both.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ...api import RolloutState

State = RolloutState


class Event(StrEnum):
    """The events of a rollout; occurrences.py decides when each has happened."""

    NEW_TARGET = "NewTarget"
    """The spec asks for a revision that is neither blue nor green."""
    REVERTED = "Reverted"
    """The spec asks for blue again, or for a revision that cannot be made."""
    ABORTED = "Aborted"
    """A user asked to abort green."""
    OVERDUE = "Overdue"
    """Green made no progress within progressDeadlineSeconds."""
    NO_ROOM = "NoRoom"
    """A pod of green finds no node beside blue's pods."""
    SCHEDULED = "Scheduled"
    """Enough of green's pods have nodes."""
    WARM = "Warm"
    """Enough of green's pods are ready."""
    COLD = "Cold"
    """Too few of green's pods are still ready."""
    VERIFIED = "Verified"
    """All prompts were answered as expected."""
    UNVERIFIED = "Unverified"
    """A prompt was not answered as expected."""
    PROMOTED = "Promoted"
    """Green may get requests, automatically or by a user's request."""
    WAVE_READY = "WaveReady"
    """InPlace only: the new pods of this wave are ready."""
    ACKNOWLEDGED = "Acknowledged"
    """All gateways follow the assignment, or the time for it is over."""
    BREACHED = "Breached"
    """Green breaks a limit, or has crashed."""
    STEP_PASSED = "StepPassed"
    """The observation of a canary step was good."""
    STEP_CHANGED = "StepChanged"
    """The canary's steps were edited, and the current step has another weight."""
    CONFIRMED = "Confirmed"
    """The observation was good, or nothing can be observed."""
    DRAINED = "Drained"
    """Blue is no longer needed."""
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
"""Green gets no requests yet. Blue may be measured, as the baseline for green."""
WITH_REQUESTS = frozenset({State.SWITCHING, State.OBSERVING})
"""Green gets requests and is measured, and blue is kept for a rollback."""
AT_REST = frozenset({State.IDLE, State.ROLLED_BACK})
"""No rollout is in progress."""
GIVEN_UP = frozenset({State.ROLLING_BACK, State.ROLLED_BACK})
