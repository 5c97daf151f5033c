"""When a verdict is to be expected, if requests go on as so far, and whether that is too late."""

from __future__ import annotations

from dataclasses import dataclass

from llmendpoint_verdicts.outlook import Outlook, requests_to_compare, requests_to_show
from llmendpoint_verdicts.shares import CELL_REQUESTS, Required

from .analysis import Result, Verdict
from .evidence import Figures
from .findings import Question
from .limits import OBSERVE, Limits

MOST = 10_000_000
"""Requests of a forecast: more will not come."""
EARLY_S = 20.0
"""Seconds after which the traffic is known well enough to say that it is too little."""
IN_TIME = 0.8
"""Share of the time that a forecast may take to be in time again."""
LONGEST = 86_400
"""The largest maxDuration, in seconds."""
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
    verdict: Verdict,
    limits: Limits,
    green: Figures,
    beside: Figures | None,
    longest: float,
    *,
    late: bool = False,
) -> Expectation | None:
    """None where no verdict is foreseen, or nothing is known yet, or each limit is kept and one is near: nobody can say when it no
    longer is. `longest`: seconds after which the observation ends. `late`:
    whether it was said before that the verdict comes too late; then it must be in time by some to be taken back."""
    observed = green.seconds or 0.0
    if green.requests == 0 or observed <= 0 or (verdict.kept and verdict.result is Result.TOO_LITTLE):
        return None
    share = beside.requests / green.requests if beside is not None else 0.0
    more = _requests(verdict, limits.required, share)
    if more is None:
        return None
    rate = green.requests / observed
    seconds = max(more / rate, limits.duration - observed, 0.0)
    in_time = observed + more / rate <= (IN_TIME * longest if late else longest)
    said = ""
    if observed >= EARLY_S and not in_time:
        said = _late(verdict, limits, share, rate, green.requests + more, longest)
    return Expectation(green.requests + more, seconds, said)


def _requests(verdict: Verdict, required: Required, beside: float, margin: float | None = None) -> int | None:
    """How many more of green, until one limit is shown to be broken, or all to be kept."""
    questions = [one.test.question for one in verdict.findings if one.test.question is not None]
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
        and (more := _requests(verdict, limits.required, beside, margin)) is not None
        and more / rate < longest
    )
    wider = next(enough, None)
    changes = [f"maxDuration: {_up(needed)}"] if _up(needed) <= LONGEST else []
    changes += [f"margin: {wider:g}"] if wider else []
    change = f", or write {OBSERVE}.{' or '.join(changes)}" if changes else ""
    per_second = f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"
    return (
        f"at {per_second} requests/s a verdict takes about {requests} requests, {needed:.0f} s, and the observation ends "
        f"after {longest:.0f} s; send more requests{change}"
    )


def _up(seconds: float) -> int:
    """To the next minute, with some to spare."""
    return int(-(-seconds * 1.2 // 60)) * 60
