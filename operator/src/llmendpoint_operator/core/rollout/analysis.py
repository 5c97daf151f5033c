"""Whether a revision that gets requests does well: evidence against each limit, and for it.

| there is | verdict |
|---|---|
| no request that succeeded, of the first TOTAL_FAILURE or more | Bad, at once |
| evidence that a limit is broken | Bad, at once |
| a limit whose figure nobody measured | TooLittle |
| fewer requests than minRequests | TooLittle |
| too little evidence that each limit is kept, within the margin | TooLittle |
| less time than duration | TooLittle |
| a figure that is above its limit so far, or just below it, though within the margin | TooLittle, but `kept`: Good when there is no more time |
| otherwise | Good |

A good revision is called Bad in `false_rollback_rate` of the rollouts at most. All limits and all windows share this rate
evenly; the moments of looking need no share of it (llmendpoint_verdicts.shares). A revision that breaks a limit by more than the
margin is called Good in `miss_rate` of the rollouts at most: since all limits have to be shown, nothing is shared.

Messages of TooLittle hold no figure that moves: they stand in the status while the figures change.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from ..sentences import latency_text
from .evidence import Figures
from .findings import Finding
from .limit_evidence import find
from .limits import DEFAULT_ERROR_RATE, OBSERVE, Limits

TOTAL_FAILURE = 5
"""So many requests, without one that succeeded, need no statistics."""
BROKEN_BEFORE = 0.5
"""Share of failed requests from which the old revision did not work either."""
RAREST = 1_000_000
"""Nobody needs to know more exactly how rarely chance does it."""
MOST_ALLOWED = 0.99
"""Of an error rate's limit: where all requests may fail, none is too many."""


class Result(StrEnum):
    """Of a judgement."""

    GOOD = "Good"
    BAD = "Bad"
    TOO_LITTLE = "TooLittle"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` in one word, `message` in a sentence with figure and limit. `kept`: whether each limit is shown to be kept,
    within the margin. `findings`: the evidence."""

    result: Result
    reason: str
    message: str
    kept: bool = False
    findings: tuple[Finding, ...] = field(default=(), compare=False)


def judge(
    limits: Limits,
    green: Figures,
    before: Figures | None,
    elapsed: float,
    beside: Figures | None = None,
) -> Verdict:
    """The verdict over `green`, `elapsed` seconds after its observation began. `before`: blue's figures from before the
    switch. `beside`: those of the same seconds as green's, where blue still gets requests."""
    findings = tuple(find(limits, green, before, beside))
    return _weigh(limits, green, before if beside is None else beside, elapsed, findings)


def _weigh(
    limits: Limits,
    green: Figures,
    blue: Figures | None,
    elapsed: float,
    findings: tuple[Finding, ...],
) -> Verdict:
    """The first row of the table that applies."""
    required, verdict = limits.required, partial(Verdict, findings=findings)
    if _fails_totally(limits, green, blue, required.broken):
        return verdict(Result.BAD, "EveryRequestFailed", f"all of the {green.requests} requests failed")
    broken = max(findings, key=lambda finding: finding.test.broken, default=None)
    if broken is not None and broken.test.broken >= required.broken:
        return verdict(Result.BAD, broken.reason, f"{broken.said()}; {_by_chance(broken.test.broken)}")
    if green.requests < limits.min_requests:
        message = f"fewer than {limits.min_requests} requests ({OBSERVE}.minRequests)"
        return verdict(Result.TOO_LITTLE, "TooFewRequests", message)
    for finding in findings:
        if finding.test.kept < required.kept:
            return verdict(Result.TOO_LITTLE, *finding.open())
    if min(elapsed, elapsed if green.seconds is None else green.seconds) < limits.duration:
        message = f"within its limits; observed for {limits.duration:.0f} s ({OBSERVE}.duration)"
        return verdict(Result.TOO_LITTLE, "StillObserving", message)
    said = _summary(limits, green) + "".join(dict.fromkeys(finding.note for finding in findings))
    near = next((one for one in findings if one.test.near), None)
    if near is not None:
        message = f"the figure is above {near.field} so far, or just below it; within {OBSERVE}.margin of {100 * limits.margin:g}%"
        return verdict(Result.TOO_LITTLE, "NearLimit", message, kept=True)
    return verdict(Result.GOOD, "WithinLimits", said, kept=True)


def _fails_totally(limits: Limits, green: Figures, blue: Figures | None, required: float) -> bool:
    """TOTAL_FAILURE requests, and more where the limit allows so many errors that five in a row are no wonder. Not where
    the old revision fails as well: then the callers, or what both need, are at fault."""
    allowed = min(max(limits.error_rate or 0.0, DEFAULT_ERROR_RATE), MOST_ALLOWED)
    if not green.errors == green.requests >= max(TOTAL_FAILURE, required / -math.log(allowed)):
        return False
    return blue is None or blue.requests < TOTAL_FAILURE or blue.failed.rate < BROKEN_BEFORE


def _by_chance(evidence: float) -> str:
    """What an e-value says: in how many rollouts at most a revision within the limit would show this; rounded down."""
    if evidence >= math.log(RAREST):
        return f"less than 1 in {RAREST:,} by chance"
    return f"1 in {_rounded(math.exp(evidence))} by chance"


def _rounded(number: float) -> str:
    """Two digits, and thousands apart."""
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{math.floor(number / digits) * digits:,}"


def _summary(limits: Limits, green: Figures) -> str:
    parts = [f"error rate {green.failed.rate:.1%} of {green.requests} requests"]
    for limit in limits.latencies:
        tail = limit.figure(green)
        if tail is not None and tail.p95 is not None:
            parts.append(f"{limit.name} p95 {latency_text(tail.p95)}")
    return ", ".join(parts)
