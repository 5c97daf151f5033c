"""What an observation has come to: the verdict of `core/rollout/analysis.py`, and what follows when there is none.

A limit is *set* when the user wrote one: an error rate, a latency, or an SLO. Where none is, the share of errors is
still watched, but an endpoint that nobody calls is not kept waiting for a verdict.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from llmendpoint_verdicts.shares import Required

from ...api import LLMEndpointSpec, OnInconclusive
from .account import Account, LimitAccount, Point, due_in, with_point
from .analysis import Result, Verdict, judge
from .evidence import Figures
from .expectation import expect
from .findings import Finding
from .limit_evidence import enough
from .limits import Limits, find_limits
from .machine import State
from .records import cut
from .situation import Situation
from .tails import Tail

OLD_SECONDS = 600
"""After this traffic may have changed: it is how far ahead the drift of a baseline is known."""
NEXT_FIGURES_S = 1.0
"""No wait is shorter: figures grow with the samples, and the one that completes an observation comes a little after its end."""


class Answer(StrEnum):
    """What an observation has come to."""

    WAIT = "Wait"
    PAUSE = "Pause"
    GOOD = "Good"
    BAD = "Bad"


@dataclass(frozen=True, slots=True)
class Observation:
    """`seconds`: how long to wait, with WAIT, until time alone may change the answer."""

    answer: Answer
    reason: str = ""
    message: str = ""
    seconds: float = 0.0


def limits_set(spec: LLMEndpointSpec) -> bool:
    """Whether the user wrote a limit."""
    observe, slo = spec.rollout.observe, spec.slo
    own = (observe.error_rate, observe.ttft, observe.itl, slo.ttft_seconds, slo.itl_seconds, slo.e2e_seconds)
    return any(limit is not None for limit in own)


def observing(s: Situation) -> Observation:
    """What the observation of this step has come to. With a duration of zero nothing more is to be seen of a revision that
    gets its share at this moment; of one that had it before, too little traffic is no verdict there too."""
    evidence, duration = s.snapshot.observed.evidence, _duration(s)
    nobody = evidence.gateways_known and not evidence.gateways and not limits_set(s.spec)
    unasked = s.wanted == 0 and evidence.window is None
    if duration == 0 or s.progress.blue is None or unasked or nobody:
        return Observation(Answer.GOOD, "NothingToObserve", "there was nothing to observe")
    verdict = _verdict(s)
    if verdict.result is Result.GOOD:
        return Observation(Answer.GOOD, verdict.reason, verdict.message)
    if verdict.result is Result.BAD:
        return Observation(Answer.BAD, verdict.reason, verdict.message)
    return _inconclusive(s, duration, verdict)


def account(s: Situation, *, final: bool = False) -> Account | None:
    """What the status is to say of this observation: what it says already, or more. The `final` one is always new."""
    before, green = s.progress.account, _observed_figures(s)
    if green is None or not (final or account_in(s) == 0):
        return before
    verdict = _verdict(s)
    asked = find_limits(s.spec, _duration(s))
    limits = tuple(_account(finding, asked.required) for finding in verdict.findings)
    point = Point(
        round(green.seconds or 0.0, 1),
        max((one.broken for one in limits), default=0.0),
        min((one.kept for one in limits), default=0.0),
    )
    history = with_point(before.history if before else (), point)
    beside = _beside(s)
    written = Account(
        cut(s.now), held(green, asked), held(beside, asked) if beside else None, limits, history
    )
    longest = max(_duration(s), s.spec.rollout.observe.max_duration)
    late = before is not None and bool(before.late)
    found = expect(verdict, asked, green, beside, longest, late=late)
    if found is None or verdict.result is Result.BAD:
        return written
    said = found.late if limits_set(s.spec) else ""
    return replace(written, requests=found.requests, wait=found.seconds, late=said)


def account_in(s: Situation) -> float | None:
    """Seconds until the account in the status is to be written again; None while there is nothing new to tell."""
    green, endpoints = _observed_figures(s), s.snapshot.observed.evidence.endpoints
    return None if green is None else due_in(s.progress.account, green, s.now, endpoints)


def _observed_figures(s: Situation) -> Figures | None:
    """Green's, where this step is observed."""
    observed = s.progress.state is State.OBSERVING and s.progress.blue is not None and _duration(s) > 0
    return _figures(s) if observed else None


def held(figures: Figures, limits: Limits) -> Figures:
    """What the status holds of them: of each latency the bounds around its limit and those nearest to its 95th percentile."""
    asked = {one.field: (one.seconds,) for one in limits.latencies if one.seconds is not None}

    def nearest(name: str, tail: Tail | None) -> Tail | None:
        return tail.nearest(asked.get(name, ())) if tail is not None else None

    return figures.with_latencies(nearest)


def _account(finding: Finding, required: Required) -> LimitAccount:
    """Evidence below none is none: it would only tell how far the other answer is."""
    broken, kept = (
        round(min(1.0, max(0.0, found) / enough_of_it), 3)
        for found, enough_of_it in (
            (finding.test.broken, required.broken),
            (finding.test.kept, required.kept),
        )
    )
    return LimitAccount(finding.field, broken, kept, finding.figure() or finding.open()[1])


def _duration(s: Situation) -> int:
    """Seconds of this step's observation."""
    canary, weight = s.spec.rollout.canary, s.canary_weight
    if canary is not None and weight is not None:
        return canary.steps[s.progress.step or 0].duration
    return s.spec.rollout.observe.duration


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


def newer_baseline(s: Situation) -> Figures | None:
    """Blue's figures of this step, to compare green's next ones with; None where they do not suffice, or where the ones from
    before the switch are not old."""
    limits, beside = find_limits(s.spec, _duration(s)), _beside(s)
    old = s.since(s.progress.started_at) > OLD_SECONDS
    return beside if old and limits.relative and beside is not None and enough(limits, beside) else None


def _verdict(s: Situation) -> Verdict:
    """Over the figures of this step, beside those of blue: of the same seconds if it gets requests, else from before."""
    if "verdict" not in s.memo:
        s.memo["verdict"] = judge(
            find_limits(s.spec, _duration(s)),
            _figures(s) or Figures(),
            s.progress.baseline,
            s.since(s.progress.state_since),
            (_beside(s) or Figures()) if _compares(s) else None,
        )
    verdict: Verdict = s.memo["verdict"]
    return verdict


def _beside(s: Situation) -> Figures | None:
    """Blue's, of the same seconds as green's; None where it gets no requests."""
    evidence, blue = s.snapshot.observed.evidence, s.progress.blue or ""
    return evidence.figures.get(blue) if _compares(s) and evidence.window == s.progress.window else None


def _compares(s: Situation) -> bool:
    """Whether blue gets requests in the same seconds as green, and answers them."""
    return s.weight(s.progress.blue) > 0 and s.blue_ready > 0


def _inconclusive(situation: Situation, duration: float, verdict: Verdict) -> Observation:
    """Too little for a verdict: more time, or what `onInconclusive` says. A figure that is above its limit and within the
    margin is good when there is no more time."""
    spec = situation.spec
    choice = spec.rollout.observe.on_inconclusive
    quick = choice is None and not limits_set(spec)
    patience = duration if quick else max(duration, spec.rollout.observe.max_duration)
    observed = _observed(situation)
    if observed is None:
        return Observation(Answer.WAIT, seconds=patience)
    if observed < patience:
        end = duration if observed < duration else patience
        return Observation(Answer.WAIT, seconds=max(NEXT_FIGURES_S, end - observed))
    if verdict.kept:
        return Observation(Answer.GOOD, verdict.reason, verdict.message)
    said = f"no verdict after {patience:.0f} s: {verdict.message}"
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
    since, figures = situation.since(situation.progress.state_since), _figures(situation)
    if figures is not None and figures.seconds is not None:
        return min(since, figures.seconds)
    return min(since, evidence.watched) if evidence.gateways_known else None
