"""Whether a revision that gets requests does well: evidence against each limit, and for it.

| there is | verdict |
|---|---|
| no request that succeeded, of the first TOTAL_FAILURE or more | Bad, at once |
| evidence that a limit is broken | Bad, at once |
| a limit whose figure nobody measured | TooLittle |
| fewer requests than minRequests | TooLittle |
| too little evidence that each limit is kept, within the margin | TooLittle |
| less time than duration | TooLittle |
| otherwise | Good |

A good revision is called Bad in `false_rollback_rate` of the rollouts at most. All limits and all windows share this rate
evenly; the moments of looking need no share of it (llmendpoint_verdicts.shares). A revision that breaks a limit by more than the
margin is called Good in `miss_rate` of the rollouts at most: since all limits have to be shown, nothing is shared.

Relative limits are not waited for when the old revision had too few requests to show that they are kept, or did not report
the figure; the verdict says so. Messages of TooLittle hold no figure that moves: they stand in the status while the figures
change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache

from llmendpoint_verdicts.shares import Share, above, below, less, more

from ..sentences import latency_text
from .evidence import Figures
from .limits import DEFAULT_ERROR_RATE, OBSERVE, LatencyLimit, Limits
from .tails import SLOWEST, Tail, comparable

TOTAL_FAILURE = 5
"""So many requests, without one that succeeded, need no statistics."""
BROKEN_BEFORE = 0.5
"""Share of failed requests from which the old revision did not work either."""
MOST_ALLOWED = 0.99
"""Of an error rate's limit: where all requests may fail, none is too many."""
PLENTY = 4
"""Times as many requests of green as of blue decide, if any number can."""


class Result(StrEnum):
    """Of a judgement."""

    GOOD = "Good"
    BAD = "Bad"
    TOO_LITTLE = "TooLittle"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`reason` in one word, `message` in a sentence with figure and limit."""

    result: Result
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding:
    """About one limit. `broken`, `kept`: evidence, as logarithms (kept: infinite where it is not waited for). `said` gives the
    figure beside the limit, in words. `open`: reason and message as long as nothing is shown. `note`: what was left out."""

    reason: str
    broken: float
    kept: float
    said: Callable[[], str]
    open: tuple[str, str]
    note: str = ""


TOO_FEW_BEFORE = "; not compared with the old revision, which had too few requests before the switch"
NOT_REPORTED = "; {} not compared with the old revision, which did not report it"
TOO_COARSE = "; {} not compared with the old revision: the histogram has no bound high enough"


def judge(limits: Limits, green: Figures, baseline: Figures | None, elapsed: float) -> Verdict:
    """The verdict over `green`, `elapsed` seconds after its observation began; `baseline` is the old revision's."""
    findings = tuple(find(limits, green, baseline))
    required = math.log(max(1, len(findings)) * limits.windows / limits.false_rollback_rate)
    if _fails_totally(limits, green, baseline, required):
        return Verdict(Result.BAD, "EveryRequestFailed", f"all of the {green.requests} requests failed")
    broken = max(findings, key=lambda finding: finding.broken, default=None)
    if broken is not None and broken.broken >= required:
        return Verdict(Result.BAD, broken.reason, f"{broken.said()}; {_by_chance(broken.broken)}")
    if green.requests < limits.min_requests:
        message = f"fewer than {limits.min_requests} requests ({OBSERVE}.minRequests)"
        return Verdict(Result.TOO_LITTLE, "TooFewRequests", message)
    for finding in findings:
        if finding.kept < -math.log(limits.miss_rate):
            return Verdict(Result.TOO_LITTLE, *finding.open)
    if min(elapsed, elapsed if green.seconds is None else green.seconds) < limits.duration:
        message = f"within its limits; observed for {limits.duration:.0f} s ({OBSERVE}.duration)"
        return Verdict(Result.TOO_LITTLE, "StillObserving", message)
    notes = "".join(dict.fromkeys(finding.note for finding in findings))
    return Verdict(Result.GOOD, "WithinLimits", _summary(limits, green) + notes)


def find(limits: Limits, green: Figures, baseline: Figures | None) -> Iterator[Finding]:
    """The evidence about each limit."""
    if limits.error_rate is not None:
        yield _error_rate(limits, limits.error_rate, green)
    if limits.error_rate_increase is not None:
        yield _error_rate_increase(limits, limits.error_rate_increase, green, baseline)
    for limit in limits.latencies:
        if limit.seconds is not None:
            yield _latency(limits, limit, limit.seconds, green)
        if limit.ratio is not None:
            yield _latency_ratio(limits, limit, limit.ratio, green, baseline)


def enough(limits: Limits, blue: Figures) -> bool:
    """Whether so many requests of the old revision suffice to show, with enough of the new one's, that each relative limit
    is kept. What it does not report is not waited for."""
    return all(finding.note != TOO_FEW_BEFORE for finding in find(limits, blue, blue))


def _fails_totally(limits: Limits, green: Figures, baseline: Figures | None, required: float) -> bool:
    """TOTAL_FAILURE requests, and more where the limit allows so many errors that five in a row are no wonder. Not where
    the old revision failed as well: then the callers, or what both need, are at fault."""
    allowed = min(max(limits.error_rate or 0.0, DEFAULT_ERROR_RATE), MOST_ALLOWED)
    if not green.errors == green.requests >= max(TOTAL_FAILURE, required / -math.log(allowed)):
        return False
    return baseline is None or baseline.requests == 0 or baseline.failed.rate < BROKEN_BEFORE


def _error_rate(limits: Limits, limit: float, green: Figures) -> Finding:
    allowed = min(1.0, limit + limits.margin)
    return Finding(
        "ErrorRateTooHigh",
        above(green.failed, limit),
        below(green.failed, allowed) if allowed < 1 else math.inf,
        lambda: f"{_errors(green)} is above the limit of {limit:.1%} ({OBSERVE}.errorRate.max)",
        _not_yet(f"the error rate is at most {limit:.1%}", limits),
    )


def _error_rate_increase(limits: Limits, increase: float, green: Figures, blue: Figures | None) -> Finding:
    open_ = _not_yet(f"the error rate has grown by {increase:.1%} at most", limits)
    if blue is None or blue.requests == 0:
        return Finding("ErrorRateIncreased", -math.inf, math.inf, str, open_, TOO_FEW_BEFORE)
    said = lambda: (  # noqa: E731
        f"{_errors(green)} is more than {increase:.1%} above the old revision's {blue.failed.rate:.1%} "
        f"({OBSERVE}.errorRate.maxIncrease)"
    )
    return _relative(limits, "ErrorRateIncreased", said, open_, green.failed, blue.failed, increase)


def _latency(limits: Limits, limit: LatencyLimit, seconds: float, green: Figures) -> Finding:
    tail = limit.figure(green)
    if tail is None:
        return _unmeasured(limit, limit.seconds_field)
    high, low = tail.from_above(seconds), tail.from_below(seconds)
    if low is None:
        message = (
            f"the lowest bound of the engine's histogram of the {limit.name} is above {limit.seconds_field}"
        )
        return Finding("", -math.inf, -math.inf, str, ("LimitTooLow", message))
    return Finding(
        f"{limit.reason}TooHigh",
        above(tail.at(high), SLOWEST) if high is not None else -math.inf,
        below(tail.at(low), SLOWEST + limits.margin),
        lambda: (
            f"{_slower(limit, tail, high)} is above the limit of {latency_text(seconds)} ({limit.seconds_field})"
        ),
        _not_yet(f"the {limit.name} p95 is at most {latency_text(seconds)}", limits),
    )


def _latency_ratio(
    limits: Limits, limit: LatencyLimit, ratio: float, green: Figures, baseline: Figures | None
) -> Finding:
    reason, tail = f"{limit.reason}Increased", limit.figure(green)
    open_ = _not_yet(f"the {limit.name} p95 is at most {ratio:g} times the old revision's", limits)
    blue = limit.figure(baseline) if baseline is not None else None
    if blue is None:
        note = (
            TOO_FEW_BEFORE if baseline is None or baseline.requests == 0 else NOT_REPORTED.format(limit.name)
        )
        return Finding(reason, -math.inf, math.inf, str, open_, note)
    if tail is None:
        return _unmeasured(limit, limit.ratio_field)
    pair = comparable(tail, blue, ratio)
    if pair is None:
        return Finding(reason, -math.inf, math.inf, str, open_, TOO_COARSE.format(limit.name))
    mine, theirs = tail.at(pair.green), blue.at(pair.blue)
    said = lambda: (  # noqa: E731
        f"{_slower(limit, tail, pair.green)} is above {ratio:g} times the old revision's {latency_text(blue.p95 or 0.0)} "
        f"({theirs.rate:.1%} longer than {latency_text(blue.bounds[pair.blue])}; {limit.ratio_field})"
    )
    found = _relative(limits, reason, said, open_, mine, theirs, pair.increase)
    # What is tested lies near the 95th percentile: it counts only where that itself, as read from the histogram, is too high.
    too_high = found.broken > 0 and (tail.p95 or 0.0) > (blue.p95 or 0.0) * ratio
    return found if too_high else replace(found, broken=min(found.broken, 0.0))


def _relative(
    limits: Limits,
    reason: str,
    said: Callable[[], str],
    open_: tuple[str, str],
    green: Share,
    blue: Share,
    increase: float,
) -> Finding:
    """It is not waited for where even PLENTY of requests of green would not show that the limit is kept: blue had too few."""
    worse, allowed = more(green, blue, increase), increase + limits.margin
    if _best(blue, allowed) < -math.log(limits.miss_rate):
        return Finding(reason, worse, math.inf, said, open_, TOO_FEW_BEFORE)
    return Finding(reason, worse, less(green, blue, allowed), said, open_)


@lru_cache(maxsize=4096)
def _best(blue: Share, allowed: float) -> float:
    """The evidence that a limit is kept, of a green that does as blue and has plenty of requests."""
    return less(Share(PLENTY * blue.requests, PLENTY * blue.hits, blue.clumping), blue, allowed)


def _unmeasured(limit: LatencyLimit, field: str) -> Finding:
    message = f"no replica of the revision reports its {limit.name}, which {field} limits"
    return Finding("", -math.inf, -math.inf, str, ("NothingMeasured", message))


def _not_yet(allowed: str, limits: Limits) -> tuple[str, str]:
    within = f"within {OBSERVE}.margin of {limits.margin:.0%}"
    return "NotKnownYet", f"too few requests so far to show that {allowed}, {within}"


def _by_chance(evidence: float) -> str:
    """What an e-value says: in how many rollouts at most a revision within the limit would show this; rounded down."""
    chance = math.exp(min(evidence, math.log(1e6)))
    return f"1 in {_rounded(chance)} by chance"


def _rounded(number: float) -> str:
    """Two digits, and thousands apart."""
    digits = 10 ** max(0, math.floor(math.log10(number)) - 1)
    return f"{math.floor(number / digits) * digits:,}"


def _errors(figures: Figures) -> str:
    return f"error rate {figures.failed.rate:.1%} ({figures.errors} of {figures.requests} requests)"


def _slower(limit: LatencyLimit, tail: Tail, bound: int | None) -> str:
    p95 = f"{limit.name} p95 {latency_text(tail.p95 or 0.0)}"
    if bound is None:
        return p95
    share = tail.at(bound)
    return f"{p95} ({share.rate:.1%} of {share.requests:.0f} requests took longer than {latency_text(tail.bounds[bound])})"


def _summary(limits: Limits, green: Figures) -> str:
    parts = [f"error rate {green.failed.rate:.1%} of {green.requests} requests"]
    for limit in limits.latencies:
        tail = limit.figure(green)
        if tail is not None and tail.p95 is not None:
            parts.append(f"{limit.name} p95 {latency_text(tail.p95)}")
    return ", ".join(parts)
