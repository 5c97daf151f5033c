"""The result of a decision: count, reason of a change, scaler's state. No figure here changes by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..endpoint.steps import Event
from ..sentences import fitting


class Reason(StrEnum):
    """Why the count changed."""

    SIGNALS = "Signals"
    """The signals recommend more or fewer replicas."""
    ACTIVATED = "Activated"
    """An idle endpoint gets requests."""
    IDLE = "Idle"
    """No request arrived for the cooldown period."""
    FALLBACK = "Fallback"
    """The load is unknown."""
    BOUNDS = "Bounds"
    """The bounds changed, by the spec or a schedule."""
    BY_HAND = "SetByHand"
    """A user changed spec.replicas."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the count. The message has the figures of that moment."""

    before: int
    after: int
    reason: Reason
    message: str
    at: datetime

    @property
    def event(self) -> Event:
        """The Event about the change."""
        kind = "ScaledUp" if self.after > self.before else "ScaledDown"
        said = f"replicas {self.before} -> {self.after} ({self.reason}): {self.message}"
        return Event(kind, fitting(said), "Warning" if self.reason is Reason.FALLBACK else "Normal")


@dataclass(frozen=True, slots=True)
class Outlook:
    """The scaler's state, for the conditions Scaling (whether it follows its signals, and what limits it) and
    ScalingBlind (whether the load is unknown)."""

    follows: bool
    reason: str
    message: str
    blind: str = ""
    """Which figures are missing; empty if none is."""
    partly: bool = False
    """Whether only some figures are missing."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """The scaler's present result, for the plan. `change`: the last one that this leader made. `outlook`:
    None before its first figures; the conditions then stay unchanged."""

    replicas: int
    change: Change | None = None
    outlook: Outlook | None = None
