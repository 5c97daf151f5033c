"""When a verdict is to be expected, if requests go on as so far, and whether that is too late."""

from __future__ import annotations

from dataclasses import dataclass

from llmendpoint_verdicts.outlook import Outlook, Required, requests_to_compare, requests_to_show

from .analysis import Verdict
from .cells import CELL_REQUESTS
from .evidence import Figures
from .limit_evidence import Question
from .limits import OBSERVE, Limits

MOST = 10_000_000
"""Requests of a forecast: more will not come."""
EARLY_S = 20.0
"""Seconds after which the traffic is known well enough to say that it is too little."""
WIDER = (0.05, 0.1, 0.2)
"""Margins that may be proposed."""


@dataclass(frozen=True, slots=True)
class Expectation:
    """`requests`: of the new revision, those so far among them. `seconds`: from now on. `late`: what to change where that is
    after maxDuration; empty otherwise."""

    requests: int
    seconds: float
    late: str = ""


def expect(
    verdict: Verdict, limits: Limits, green: Figures, beside: Figures | None, longest: float
) -> Expectation | None:
    """None where no verdict is foreseen, or nothing is known yet. `longest`: seconds after which the observation ends."""
    observed = green.seconds or 0.0
    if green.requests == 0 or observed <= 0:
        return None
    share = beside.requests / green.requests if beside is not None else 0.0
    more = _requests(verdict, share)
    if more is None:
        return None
    rate = green.requests / observed
    seconds = max(more / rate, limits.duration - observed, 0.0)
    late = ""
    if observed >= EARLY_S and observed + more / rate > longest:
        late = _late(verdict, limits, share, rate, green.requests + more, longest)
    return Expectation(green.requests + more, seconds, late)


def _requests(verdict: Verdict, beside: float, margin: float | None = None) -> int | None:
    """How many more of green, until one limit is shown to be broken, or all to be kept."""
    required = Required(verdict.required, verdict.needed)
    questions = [one.question for one in verdict.findings if one.question is not None]
    found = [_outlook(question, required, beside, margin) for question in questions]
    broken = [one.broken for one in found if one.broken is not None]
    kept = [one.kept for one in found if one.kept is not None]
    if len(kept) == len(verdict.findings) and kept:
        broken.append(max(kept))
    return min(broken, default=None)


def _outlook(question: Question, required: Required, beside: float, margin: float | None) -> Outlook:
    margin = question.allowed - question.limit if margin is None else margin
    if question.blue is None:
        return requests_to_show(
            question.green, question.limit, margin, required, most=MOST, cell=CELL_REQUESTS
        )
    return requests_to_compare(
        question.green,
        question.blue,
        question.limit,
        margin,
        required,
        most=MOST,
        beside=beside,
        cell=CELL_REQUESTS,
    )


def _late(verdict: Verdict, limits: Limits, beside: float, rate: float, requests: int, longest: float) -> str:
    needed = requests / rate
    enough = (
        margin
        for margin in WIDER
        if margin > limits.margin
        and (more := _requests(verdict, beside, margin)) is not None
        and more / rate < longest
    )
    wider = next(enough, None)
    change = f"{OBSERVE}.maxDuration: {_up(needed)}" + (f" or margin: {wider:g}" if wider else "")
    return (
        f"at {rate:.2g} requests/s a verdict takes about {requests} requests, {needed:.0f} s, and "
        f"{OBSERVE}.maxDuration is {longest:.0f} s; send more requests, or write {change}"
    )


def _up(seconds: float) -> int:
    """To the next minute, with some to spare."""
    return int(-(-seconds * 1.2 // 60)) * 60
