"""Whether a foreign engine has proven that it answers: the state machine of `llmendpoint-probe`.

A generation is the proof, and it holds for one run of the engine. A run ends when the connection of the heartbeats is
lost: a process that starts again, however fast, cannot keep it. The time (`now`, seconds of any clock) is an argument.

    phase \\ event  CONNECTED  HEALTHY  UNHEALTHY  LOST  GENERATED  FAILED
    AWAY           COLD       AWAY     AWAY       AWAY  AWAY       AWAY
    COLD           COLD       WARMING  COLD       AWAY  COLD       COLD
    WARMING        COLD       WARMING  COLD       AWAY  READY      COLD
    READY          COLD       READY    COLD       AWAY  READY      READY

Entering WARMING asks for a generation. A generation that was asked for earlier proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

SILENCE_SECONDS = 5.0
"""An engine that has not answered a heartbeat for this time gets no new requests. It is asked every second."""


class Phase(StrEnum):
    """What the probe knows of the engine."""

    AWAY = "away"
    """No connection."""
    COLD = "cold"
    """Connected, but nothing is proven."""
    WARMING = "warming"
    """A generation is in progress."""
    READY = "ready"
    """This run of the engine has answered a generation."""


class Event(StrEnum):
    """What the probe has seen."""

    CONNECTED = "connected"
    """A new connection for heartbeats."""
    HEALTHY = "healthy"
    """A heartbeat was answered with 2xx."""
    UNHEALTHY = "unhealthy"
    """A heartbeat was answered with anything else."""
    LOST = "lost"
    """The connection was refused, reset or closed."""
    GENERATED = "generated"
    FAILED = "failed"
    """The generation failed."""


_AWAY, _COLD, _WARMING, _READY = Phase
_CONNECTED, _HEALTHY, _UNHEALTHY, _LOST, _GENERATED, _FAILED = Event

TRANSITIONS: dict[Phase, dict[Event, Phase]] = {
    _AWAY: {_CONNECTED: _COLD, _HEALTHY: _AWAY, _UNHEALTHY: _AWAY, _LOST: _AWAY, _GENERATED: _AWAY, _FAILED: _AWAY},
    _COLD: {_CONNECTED: _COLD, _HEALTHY: _WARMING, _UNHEALTHY: _COLD, _LOST: _AWAY, _GENERATED: _COLD, _FAILED: _COLD},
    _WARMING: {_CONNECTED: _COLD, _HEALTHY: _WARMING, _UNHEALTHY: _COLD, _LOST: _AWAY, _GENERATED: _READY, _FAILED: _COLD},
    _READY: {_CONNECTED: _COLD, _HEALTHY: _READY, _UNHEALTHY: _COLD, _LOST: _AWAY, _GENERATED: _READY, _FAILED: _READY},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Readiness:
    """`attempt` numbers the generations that were asked for. `heard`: when a heartbeat was last answered. `healthy`:
    whether that answer was 2xx."""

    phase: Phase = Phase.AWAY
    attempt: int = 0
    heard: float = 0.0
    healthy: bool = False
    detail: str = "the engine has not been reached yet"


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of /ready, or of /live."""

    ready: bool
    status: str
    detail: str


def observe(readiness: Readiness, event: Event, detail: str, now: float) -> Readiness:
    """The readiness after a heartbeat. `event` is neither GENERATED nor FAILED."""
    after = replace(_move(readiness, event), detail=detail)
    if event not in (Event.HEALTHY, Event.UNHEALTHY):
        return after
    return replace(after, heard=now, healthy=event is Event.HEALTHY)


def conclude(readiness: Readiness, attempt: int, event: Event, detail: str) -> Readiness:
    """The readiness after the end of generation `attempt`: GENERATED or FAILED. It changes only if that one was
    awaited."""
    if readiness.phase is not Phase.WARMING or readiness.attempt != attempt:
        return readiness
    return replace(_move(readiness, event), detail=detail)


def _move(readiness: Readiness, event: Event) -> Readiness:
    phase = TRANSITIONS[readiness.phase][event]
    begins = phase is Phase.WARMING and readiness.phase is not Phase.WARMING
    return replace(readiness, phase=phase, attempt=readiness.attempt + begins)


def answer(readiness: Readiness, now: float) -> Answer:
    """Ready only with a proof and a recent heartbeat. After a silence on the same connection the proof still holds."""
    if readiness.phase is not Phase.READY:
        return Answer(False, readiness.phase.value, readiness.detail)
    silent = now - readiness.heard
    if silent > SILENCE_SECONDS:
        return Answer(False, "silent", f"the engine has not answered a heartbeat for {silent:.0f} s")
    return Answer(True, readiness.phase.value, readiness.detail)
