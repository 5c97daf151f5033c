"""Whether a foreign engine is stuck: its process runs and its health is 200, but it generates nothing any more.

An answered generation is evidence of work, and so are token counters that move: an engine whose queue is so long that
the probe's generation waits for minutes is busy, not stuck. After some time without evidence the probe asks for a
generation, which the engine then owes. An engine that has generated in this run, and owes a generation for `limit`
seconds, is stuck. A run that has not generated yet is loading, which may take any time. The time (`now`, seconds of any
clock) is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from .readiness import SILENCE_SECONDS, Answer, Phase, Readiness

HEARTBEATS_PER_LIMIT = 4
"""After this part of the limit without evidence the engine owes a generation: every 30 s for the default of 120 s."""


@dataclass(frozen=True, slots=True)
class Liveness:
    """`proven`: the engine has generated in this run. `worked`: when the last evidence came. `owed`: since when the
    engine owes a generation; None if it owes none."""

    proven: bool = False
    worked: float = 0.0
    owed: float | None = None


def follow(liveness: Liveness, phase: Phase, now: float) -> Liveness:
    """The liveness after a step of readiness.py. A new run of the engine begins with nothing proven and nothing owed."""
    if phase is Phase.AWAY:
        return Liveness()
    if phase is Phase.READY and not liveness.proven:
        return Liveness(True, now)
    return liveness


def worked(liveness: Liveness, now: float) -> Liveness:
    """The liveness after evidence of work."""
    return replace(liveness, worked=now, owed=None)


def owes(liveness: Liveness, now: float, limit: float) -> Liveness:
    """The liveness with a generation owed from now on, if it is time for one and none is owed yet."""
    quiet = now - liveness.worked >= limit / HEARTBEATS_PER_LIMIT
    return replace(liveness, owed=now) if liveness.proven and liveness.owed is None and quiet else liveness


def alive(readiness: Readiness, liveness: Liveness, now: float, limit: float) -> Answer:
    """The answer of /live: no for an engine that is away, silent, unhealthy by its own report, or stuck."""
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
