"""Whether a foreign engine is stuck: its process is there, its health is 200, and nothing is generated any more.

Evidence of work is an answered generation, or counters of tokens that move: an engine whose queue is so long that a
generation of ours waits for minutes is busy, not stuck. Where neither came for a while, a generation is owed; an engine
that has generated in this run, and leaves one owed for `limit` seconds, is stuck. A run that has not generated yet loads,
which may take as long as it likes. Time (`now`, seconds of any clock) is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .readiness import SILENCE_SECONDS, Answer, Phase, Readiness

HEARTBEATS_PER_LIMIT = 4
"""A generation is owed after this part of the limit without evidence: every 30 s for the default of 120 s."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """`worked` is when there was evidence last, `owed` since when a generation is asked for without any."""

    proven: bool = False
    worked: float = 0.0
    owed: float | None = None


def follow(liveness: Liveness, phase: Phase, now: float) -> Liveness:
    """After a step of readiness.py. Another run of the engine begins with nothing proven and nothing owed."""
    if phase is Phase.AWAY:
        return Liveness()
    if phase is Phase.READY and not liveness.proven:
        return Liveness(True, now)
    return liveness


def worked(liveness: Liveness, now: float) -> Liveness:
    """There was evidence of work."""
    return replace(liveness, worked=now, owed=None)


def owes(liveness: Liveness, now: float, limit: float) -> Liveness:
    """With a generation asked for from now on, if it is time and none is."""
    quiet = now - liveness.worked >= limit / HEARTBEATS_PER_LIMIT
    return replace(liveness, owed=now) if liveness.proven and liveness.owed is None and quiet else liveness


def alive(readiness: Readiness, liveness: Liveness, now: float, limit: float) -> Answer:
    """What /live says: no for an engine that is away, silent, unhealthy by its own word, or stuck."""
    silent = now - readiness.heard
    if readiness.phase is Phase.AWAY:
        return Answer(False, readiness.phase.value, readiness.detail)
    if silent > SILENCE_SECONDS:
        return Answer(False, "silent", f"the engine has not answered a heartbeat for {silent:.0f} s")
    if not readiness.healthy:
        return Answer(False, "unhealthy", readiness.detail)
    if liveness.owed is not None and now - liveness.owed > limit:
        detail = f"the engine is stuck: no generation was answered and no token counted for {now - liveness.worked:.0f} s"
        return Answer(False, "stuck", detail)
    return Answer(True, readiness.phase.value, readiness.detail)
