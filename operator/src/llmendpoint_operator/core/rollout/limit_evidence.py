"""The evidence about each limit of a rollout: against it, and for it.

A request that fails at both revisions is the caller's fault: where blue breaks the limit of errors as well, green is worse
than allowed only if it is worse than blue.

Relative limits are not waited for when an old revision that gets no requests any more had too few to show that they are
kept, or did not report the figure; the finding says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from llmendpoint_verdicts.shares import Share, above, below, either, less, more, pooled

from ..sentences import latency_text
from .evidence import Figures
from .limits import OBSERVE, LatencyLimit, Limits
from .tails import SLOWEST, Tail, comparable

PLENTY = 4
"""Times as many requests of green as of blue decide, if any number can."""
MEASURED = 5
"""Hits of blue that show how much they clump."""

TOO_FEW_BEFORE = "; not compared with the old revision, which had too few requests before the switch"
NOT_REPORTED = "; {} not compared with the old revision, which did not report it"
TOO_COARSE = "; {} not compared with the old revision: the histogram has no bound high enough"
FAILED_AS_WELL = "; the error rate of the old revision is {:.1%}"


@dataclass(frozen=True, slots=True)
class Finding:
    """About one limit, which the spec names `field`. `broken`, `kept`: evidence, as logarithms (kept: infinite where it is
    not waited for). `said` says in words that the limit is broken, `figure` what was counted, whatever it means. `open`: reason
    and message as long as nothing is shown. `note`: what was left out. `question`: what was tested, None where nothing was."""

    reason: str
    field: str
    broken: float
    kept: float
    said: Callable[[], str]
    open: tuple[str, str]
    note: str = ""
    question: Question | None = None
    figure: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class Question:
    """Is `green` above `limit` (broken) or below `allowed` (kept)? With `blue`, both are increases over its share."""

    green: Share
    limit: float
    allowed: float
    blue: Share | None = None

    @property
    def exceeded(self) -> bool:
        """Whether green's share is above the limit, by chance or not."""
        return self.green.rate > self.limit + (self.blue.rate if self.blue is not None else 0.0)


def find(
    limits: Limits, green: Figures, before: Figures | None, beside: Figures | None = None
) -> Iterator[Finding]:
    """The evidence about each limit. `before`: figures of blue from before the switch; `beside`: of the same seconds as
    green's, where blue gets requests. These are compared with, and both tell how blue fails."""
    blue, wait = before if beside is None else beside, beside is not None
    if limits.error_rate is not None:
        known = [figures.failed for figures in (before, beside) if figures is not None]
        yield _error_rate(limits, limits.error_rate, green, pooled(*known), wait)
    if limits.error_rate_increase is not None:
        yield _error_rate_increase(limits, limits.error_rate_increase, green, blue, wait)
    for limit in limits.latencies:
        if limit.seconds is not None:
            yield _latency(limits, limit, limit.seconds, green, before or beside)
        if limit.ratio is not None:
            yield _latency_ratio(limits, limit, limit.ratio, green, blue, wait)


def enough(limits: Limits, blue: Figures) -> bool:
    """Whether so many requests of the old revision suffice to show, with enough of the new one's, that each relative limit
    is kept. What it does not report is not waited for."""
    return all(finding.note != TOO_FEW_BEFORE for finding in find(limits, blue, blue))


def _error_rate(limits: Limits, limit: float, green: Figures, blue: Share, beside: bool) -> Finding:
    allowed = min(1.0, limit + limits.margin)
    mine, note = _clumped(green.failed, blue), ""
    question = Question(mine, limit, allowed)
    broken, kept = above(mine, limit), below(mine, allowed) if allowed < 1 else math.inf
    if blue.rate > limit and above(blue, limit) > 0:
        broken = min(broken, more(mine, blue, 0.0))
        note = FAILED_AS_WELL.format(blue.rate)
        if beside:
            kept = either(kept, less(mine, blue, limits.margin))
            question = Question(mine, 0.0, limits.margin, blue)
    return Finding(
        "ErrorRateTooHigh",
        f"{OBSERVE}.errorRate.max",
        broken,
        kept,
        lambda: f"{_errors(green)} is above the limit of {limit:.1%} ({OBSERVE}.errorRate.max){note}",
        _not_yet(f"the error rate is at most {limit:.1%}", limits),
        note,
        question,
        lambda: f"{_errors(green)}; limit {limit:.1%}{note}",
    )


def _error_rate_increase(
    limits: Limits, increase: float, green: Figures, blue: Figures | None, wait: bool
) -> Finding:
    where = f"{OBSERVE}.errorRate.maxIncrease"
    open_ = _not_yet(f"the error rate has grown by {increase:.1%} at most", limits)
    if blue is None or blue.requests == 0:
        return _uncompared("ErrorRateIncreased", where, open_, TOO_FEW_BEFORE, wait=wait)
    said = lambda: (  # noqa: E731
        f"{_errors(green)} is more than {increase:.1%} above the old revision's {blue.failed.rate:.1%} ({where})"
    )
    figure = lambda: f"{_errors(green)}; old revision {blue.failed.rate:.1%}; limit +{increase:.1%}"  # noqa: E731
    found = Finding("ErrorRateIncreased", where, 0.0, 0.0, said, open_, figure=figure)
    return _relative(limits, found, _clumped(green.failed, blue.failed), blue.failed, increase, wait=wait)


def _latency(
    limits: Limits, limit: LatencyLimit, seconds: float, green: Figures, blue: Figures | None
) -> Finding:
    tail = limit.figure(green)
    if tail is None:
        return _unmeasured(limit, limit.seconds_field)
    high, low = tail.from_above(seconds), tail.from_below(seconds)
    if low is None:
        message = (
            f"the lowest bound of the engine's histogram of the {limit.name} is above {limit.seconds_field}"
        )
        return Finding("", limit.seconds_field, -math.inf, -math.inf, str, ("LimitTooLow", message))
    before = limit.figure(blue) if blue is not None else None
    slow, sure = (_slow(tail, index, before) for index in (low if high is None else high, low))
    allowed = SLOWEST + limits.margin
    return Finding(
        f"{limit.reason}TooHigh",
        limit.seconds_field,
        above(slow, SLOWEST) if high is not None else -math.inf,
        below(sure, allowed),
        lambda: (
            f"{_slower(limit, tail, high)} is above the limit of {latency_text(seconds)} ({limit.seconds_field})"
        ),
        _not_yet(f"the {limit.name} p95 is at most {latency_text(seconds)}", limits),
        question=Question(sure, SLOWEST, allowed),
        figure=lambda: f"{_slower(limit, tail, low)}; limit {latency_text(seconds)}",
    )


def _latency_ratio(
    limits: Limits, limit: LatencyLimit, ratio: float, green: Figures, old: Figures | None, wait: bool
) -> Finding:
    reason, tail = f"{limit.reason}Increased", limit.figure(green)
    open_ = _not_yet(f"the {limit.name} p95 is at most {ratio:g} times the old revision's", limits)
    blue = limit.figure(old) if old is not None else None
    if blue is None:
        few = old is None or old.requests == 0
        note = TOO_FEW_BEFORE if few else NOT_REPORTED.format(limit.name)
        return _uncompared(reason, limit.ratio_field, open_, note, wait=wait and few)
    if tail is None:
        return _unmeasured(limit, limit.ratio_field)
    pair = comparable(tail, blue, ratio)
    if pair is None:
        return _uncompared(reason, limit.ratio_field, open_, TOO_COARSE.format(limit.name))
    mine, theirs = _clumped(tail.at(pair.green), blue.at(pair.blue)), blue.at(pair.blue)
    said = lambda: (  # noqa: E731
        f"{_slower(limit, tail, pair.green)} is above {ratio:g} times the old revision's {latency_text(blue.p95 or 0.0)} "
        f"({theirs.rate:.1%} longer than {latency_text(blue.bounds[pair.blue])}; {limit.ratio_field})"
    )
    figure = lambda: (  # noqa: E731
        f"{_slower(limit, tail, pair.green)}; old revision {latency_text(blue.p95 or 0.0)}; limit {ratio:g} times that"
    )
    found = Finding(reason, limit.ratio_field, 0.0, 0.0, said, open_, figure=figure)
    found = _relative(limits, found, mine, theirs, pair.increase, wait=wait)
    # What is tested lies near the 95th percentile: it counts only where that itself, as read from the histogram, is too high.
    too_high = found.broken > 0 and (tail.p95 or 0.0) > (blue.p95 or 0.0) * ratio
    return found if too_high else replace(found, broken=min(found.broken, 0.0))


def _relative(
    limits: Limits, found: Finding, green: Share, blue: Share, increase: float, *, wait: bool
) -> Finding:
    """It is not waited for where even PLENTY of requests of green would not show that the limit is kept: blue had too few,
    and gets no more."""
    allowed = increase + limits.margin
    found = replace(
        found, broken=more(green, blue, increase), question=Question(green, increase, allowed, blue)
    )
    if not wait and _best(blue, allowed) < -math.log(limits.miss_rate):
        return replace(found, kept=math.inf, note=TOO_FEW_BEFORE, question=None)
    return replace(found, kept=less(green, blue, allowed))


def _uncompared(reason: str, field: str, open_: tuple[str, str], note: str, *, wait: bool = False) -> Finding:
    """Where blue has no figures: these may still come while it gets requests."""
    return Finding(
        reason, field, -math.inf, -math.inf if wait else math.inf, str, open_, "" if wait else note
    )


def _clumped(green: Share, blue: Share | None) -> Share:
    """Green's, which clumps at least as much as blue's: that has often been watched for longer."""
    if blue is None or blue.hits < MEASURED or blue.clumping <= green.clumping:
        return green
    return replace(green, clumping=blue.clumping)


def _slow(tail: Tail, bound: int, before: Tail | None) -> Share:
    """Green's share at a bound; how much it clumps as in `_clumped`."""
    found = tail.at(bound)
    index = before.from_above(tail.bounds[bound]) if before is not None else None
    return found if before is None or index is None else _clumped(found, before.at(index))


@lru_cache(maxsize=4096)
def _best(blue: Share, allowed: float) -> float:
    """The evidence that a limit is kept, of a green that does as blue and has plenty of requests."""
    return less(Share(PLENTY * blue.requests, PLENTY * blue.hits, blue.clumping), blue, allowed)


def _unmeasured(limit: LatencyLimit, field: str) -> Finding:
    message = f"no replica of the revision reports its {limit.name}, which {field} limits"
    return Finding("", field, -math.inf, -math.inf, str, ("NothingMeasured", message))


def _not_yet(allowed: str, limits: Limits) -> tuple[str, str]:
    within = f"within {OBSERVE}.margin of {limits.margin:.0%}"
    return "NotKnownYet", f"too few requests so far to show that {allowed}, {within}"


def _errors(figures: Figures) -> str:
    return f"error rate {figures.failed.rate:.1%} ({figures.errors} of {figures.requests} requests)"


def _slower(limit: LatencyLimit, tail: Tail, bound: int | None) -> str:
    p95 = f"{limit.name} p95 {latency_text(tail.p95 or 0.0)}"
    if bound is None:
        return p95
    share = tail.at(bound)
    return f"{p95} ({share.rate:.1%} of {share.requests:.0f} requests took longer than {latency_text(tail.bounds[bound])})"
