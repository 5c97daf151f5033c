"""What a decision comes to: the count, why it changed, and how the scaler fares. No figure here moves by itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from ..endpoint.steps import Event
from ..sentences import fitting


class Reason(StrEnum):
    """Why the count changed."""

    SIGNALS = "Signals"
    """More or fewer replicas are recommended."""
    ACTIVATED = "Activated"
    """Somebody calls an endpoint that was idle."""
    IDLE = "Idle"
    """Nobody has called for the cooldown period."""
    FALLBACK = "Fallback"
    """Nobody knows the load."""
    BOUNDS = "Bounds"
    """The bounds changed, by the spec or a schedule."""
    BY_HAND = "SetByHand"
    """Somebody changed spec.replicas."""


@dataclass(frozen=True, slots=True)
class Change:
    """From one count to another; the message has the figures of that moment."""

    before: int
    after: int
    reason: Reason
    message: str
    at: datetime

    @property
    def event(self) -> Event:
        """For people."""
        kind = "ScaledUp" if self.after > self.before else "ScaledDown"
        said = f"replicas {self.before} -> {self.after} ({self.reason}): {self.message}"
        return Event(kind, fitting(said), "Warning" if self.reason is Reason.FALLBACK else "Normal")


@dataclass(frozen=True, slots=True)
class Outlook:
    """How the scaler fares: conditions Scaling (whether it follows signals, and what keeps it from more) and ScalingBlind
    (whether it knows no load)."""

    follows: bool
    reason: str
    message: str
    blind: str = ""
    """What is missing; empty when nothing is."""
    partly: bool = False
    """Whether only a part is missing."""


@dataclass(frozen=True, slots=True)
class Scaling:
    """What holds now, for the plan. `change`: the last one that this leader made; `outlook`: None before its first
    figures, when the conditions stay as they were."""

    replicas: int
    change: Change | None = None
    outlook: Outlook | None = None
