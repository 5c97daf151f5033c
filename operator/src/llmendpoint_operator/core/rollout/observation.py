"""What an observation has come to: the verdict of `core/rollout/analysis.py`, and what follows when there is none.

A limit is *set* when the user wrote one: an error rate, a latency, or an SLO. Where none is, the share of errors is
still watched, but an endpoint that nobody calls is not kept waiting for a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ...api import LLMEndpointSpec, OnInconclusive
from .analysis import Result, judge
from .evidence import Figures
from .limit_evidence import enough
from .limits import find_limits
from .situation import Situation


class Answer(StrEnum):
    """What an observation has come to."""

    WAIT = "Wait"
    PAUSE = "Pause"
    GOOD = "Good"
    BAD = "Bad"


@dataclass(frozen=True, slots=True)
class Observation:
    """`seconds`: how long to wait for more, with WAIT."""

    answer: Answer
    reason: str = ""
    message: str = ""
    seconds: float = 0.0


def limits_set(spec: LLMEndpointSpec) -> bool:
    """Whether the user wrote a limit."""
    observe, slo = spec.rollout.observe, spec.slo
    own = (observe.error_rate, observe.ttft, observe.itl, slo.ttft_seconds, slo.itl_seconds, slo.e2e_seconds)
    return any(limit is not None for limit in own)


def observe(situation: Situation, duration: float) -> Observation:
    """What is to be said after `duration` seconds of watching have been asked for. At zero nothing more is to be seen of
    a revision that gets its share at this moment; of one that had it before, too little traffic is no verdict there too."""
    spec, evidence = situation.spec, situation.snapshot.observed.evidence
    nobody = evidence.gateways_known and not evidence.gateways and not limits_set(spec)
    unasked = situation.wanted == 0 and evidence.window is None
    if duration == 0 or situation.progress.blue is None or unasked or nobody:
        return Observation(Answer.GOOD, "NothingToObserve", "there was nothing to observe")
    figures = _figures(situation) or Figures()
    elapsed = situation.since(situation.progress.state_since)
    verdict = judge(find_limits(spec, duration), figures, situation.progress.baseline, elapsed)
    if verdict.result is Result.GOOD:
        return Observation(Answer.GOOD, verdict.reason, verdict.message)
    if verdict.result is Result.BAD:
        return Observation(Answer.BAD, verdict.reason, verdict.message)
    return _inconclusive(situation, duration, verdict.message)


def observing(s: Situation) -> Observation:
    """What the observation of this step has come to."""
    canary, weight = s.spec.rollout.canary, s.canary_weight
    if canary is not None and weight is not None:
        return observe(s, canary.steps[s.progress.step or 0].duration)
    return observe(s, s.spec.rollout.observe.duration)


def measuring_blue(s: Situation) -> float:
    """Seconds for which a promotion waits so that green can be compared with blue: 0 where nothing is compared, when
    blue had enough requests for it, and after the length of an observation in any case."""
    limits = find_limits(s.spec, s.spec.rollout.observe.duration)
    if not limits.relative or s.wanted == 0 or s.blue_ready == 0:
        return 0.0
    figures = s.snapshot.observed.evidence.figures.get(s.progress.blue or "")
    if figures is not None and figures.requests >= limits.min_requests and enough(limits, figures):
        return 0.0
    by_the_clock = s.remaining(s.progress.state_since, limits.duration)
    return max(by_the_clock, limits.duration - s.snapshot.observed.evidence.watched)


def _inconclusive(situation: Situation, duration: float, why: str) -> Observation:
    """Too little for a verdict: more time, or what `onInconclusive` says."""
    spec = situation.spec
    choice = spec.rollout.observe.on_inconclusive
    quick = choice is None and not limits_set(spec)
    patience = duration if quick else max(duration, spec.rollout.observe.max_duration)
    observed = _observed(situation)
    if observed is None:
        return Observation(Answer.WAIT, seconds=patience)
    if observed < patience:
        return Observation(Answer.WAIT, seconds=patience - observed)
    said = f"no verdict after {patience:.0f} s: {why}"
    if choice is OnInconclusive.PROMOTE or quick:
        return Observation(Answer.GOOD, "Inconclusive", said)
    if choice is OnInconclusive.ROLLBACK:
        return Observation(Answer.BAD, "Inconclusive", said)
    hint = "send more requests, or `kubectl llm rollout promote` or `abort`"
    return Observation(Answer.PAUSE, "Inconclusive", f"{said}; {hint}")


def _figures(situation: Situation) -> Figures | None:
    """Green's, of this step: those of the one before were read in the same pass as the move."""
    evidence, progress = situation.snapshot.observed.evidence, situation.progress
    return evidence.figures.get(progress.green or "") if evidence.window == progress.window else None


def _observed(situation: Situation) -> float | None:
    """Seconds for which the figures were gathered: less than the state lasts when the operator was restarted in it.
    None before the gateways were asked."""
    evidence = situation.snapshot.observed.evidence
    watched = min(situation.since(situation.progress.state_since), evidence.watched)
    figures = _figures(situation)
    if figures is not None and figures.seconds is not None:
        return min(watched, figures.seconds)
    return watched if evidence.gateways_known else None
