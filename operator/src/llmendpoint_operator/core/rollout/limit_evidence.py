"""The evidence about each limit of a rollout: against it, and for it.

What happens to both revisions is not green's fault. Where blue gets requests in the same seconds, green breaks a limit only if
it is also worse than blue. Where there are only figures from before the switch, that holds for errors alone, and only if they
show that blue broke the limit as well: an outage that is over must not excuse a bad revision.

Relative limits are not waited for when an old revision that gets no requests any more had too few to show that they are
kept, changed too much before the switch, or did not report the figure; the finding says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from llmendpoint_verdicts.shares import FIRST_CLUMP, Share, above, below, best, either, less, more, near

from ..sentences import latency_text
from .evidence import Figures
from .findings import NOT_WAITED_FOR, UNKNOWN, Finding, Question, Tested
from .limits import OBSERVE, LatencyLimit, Limits
from .tails import SLOWEST, Tail, comparable

MEASURED = 5
"""Hits of blue that show how much they clump."""

TOO_FEW_BEFORE = "; not compared with the old revision, which had too few requests before the switch"
CHANGED_BEFORE = (
    "; not compared with the old revision, whose figures changed too much in the hours before the switch"
)
NOT_REPORTED = "; {} not compared with the old revision, which did not report it"
TOO_COARSE = "; {} not compared with the old revision: the histogram has no bound high enough"
FAILED_AS_WELL = "; the error rate of the old revision is {:.1%}"


def find(
    limits: Limits, green: Figures, before: Figures | None, beside: Figures | None = None
) -> Iterator[Finding]:
    """The evidence about each limit. `before`: figures of blue from before the switch; `beside`: of the same seconds as
    green's, where blue gets requests. These are compared with, and both tell how blue fails."""
    blue, wait = before if beside is None else beside, beside is not None
    if limits.error_rate is not None:
        yield _error_rate(limits, limits.error_rate, green, before, beside)
    if limits.error_rate_increase is not None:
        yield _error_rate_increase(limits, limits.error_rate_increase, green, blue, wait)
    for limit in limits.latencies:
        if limit.seconds is not None:
            yield _latency(limits, limit, limit.seconds, green, before, beside)
        if limit.ratio is not None:
            yield _latency_ratio(limits, limit, limit.ratio, green, blue, wait)


def enough(limits: Limits, blue: Figures) -> bool:
    """Whether so many requests of the old revision suffice to show, with enough of the new one's, that each relative limit
    is kept. What it does not report is not waited for."""
    return all(finding.note != TOO_FEW_BEFORE for finding in find(limits, blue, blue))


def _error_rate(
    limits: Limits, limit: float, green: Figures, before: Figures | None, beside: Figures | None
) -> Finding:
    where, allowed = f"{OBSERVE}.errorRate.max", min(1.0, limit + limits.margin)
    old = before.failed if before is not None else None
    mine = _clumped(green.failed, beside.failed if beside is not None else old)
    test = _absolute(limits, mine, limit, allowed, beside.failed if beside is not None else None)
    note = ""
    if beside is not None:
        note = FAILED_AS_WELL.format(beside.failed.rate) if beside.failed.rate > limit else ""
    elif old is not None and old.rate > limit and above(old, limit) >= limits.required.kept:
        note, worse = FAILED_AS_WELL.format(old.rate), more(mine, old, 0.0)
        if worse < test.broken:
            question = Question(mine, 0.0, limits.margin, old)
            test = Tested(worse, test.kept, question, test.near and worse > 0)
    return Finding(
        "ErrorRateTooHigh",
        where,
        test,
        open=lambda: _not_yet(f"the error rate is at most {limit:.1%}", limits, green),
        said=lambda: f"{_errors(green)} is above the limit of {limit:.1%} ({where}){note}{_of_one(green)}",
        figure=lambda: f"{_errors(green)}; limit {limit:.1%}{note}{_of_one(green)}",
        note=note,
    )


def _absolute(limits: Limits, mine: Share, limit: float, allowed: float, beside: Share | None) -> Tested:
    """Of a share with a limit (0..1), and of blue's in the same seconds: worse is what breaks the limit and is worse than blue;
    good is what keeps the limit, or does as blue does."""
    broken, kept = above(mine, limit), below(mine, allowed) if allowed < 1 else math.inf
    question, close = Question(mine, limit, allowed), near(mine, limit)
    if beside is None:
        return Tested(broken, kept, question, close)
    worse, alike = more(mine, beside, 0.0), less(mine, beside, limits.margin)
    if worse < broken:
        broken, question = worse, Question(mine, 0.0, limits.margin, beside)
    return Tested(broken, either(kept, alike), question, close and worse > 0)


def _error_rate_increase(
    limits: Limits, increase: float, green: Figures, blue: Figures | None, wait: bool
) -> Finding:
    where = f"{OBSERVE}.errorRate.maxIncrease"

    def open_() -> tuple[str, str]:
        return _not_yet(f"the error rate has grown by {increase:.1%} at most", limits, green)

    if blue is None or blue.requests == 0:
        return _uncompared("ErrorRateIncreased", where, open_, TOO_FEW_BEFORE, wait=wait)
    test = _relative(limits, _clumped(green.failed, blue.failed), blue.failed, increase, wait=wait)
    return Finding(
        "ErrorRateIncreased",
        where,
        test,
        open=open_,
        said=lambda: (
            f"{_errors(green)} is more than {increase:.1%} above the old revision's {blue.failed.rate:.1%} ({where})"
            f"{_of_one(green)}"
        ),
        figure=lambda: (
            f"{_errors(green)}; old revision {blue.failed.rate:.1%}; limit +{increase:.1%}{_of_one(green)}"
        ),
        note=_left_out(limits, test, blue.failed, increase),
    )


def _latency(
    limits: Limits,
    limit: LatencyLimit,
    seconds: float,
    green: Figures,
    before: Figures | None,
    beside: Figures | None,
) -> Finding:
    where, tail = limit.seconds_field, limit.figure(green)
    if tail is None:
        return _unmeasured(limit, where)
    high, low = tail.from_above(seconds), tail.from_below(seconds)
    if low is None:
        message = f"the lowest bound of the engine's histogram of the {limit.name} is above {where}"
        return Finding("", where, UNKNOWN, lambda: ("LimitTooLow", message))
    old = beside if beside is not None else before
    known = limit.figure(old) if old is not None else None
    allowed = SLOWEST + limits.margin
    sure = _absolute(limits, *_slow(tail, low, known, allowed, beside is not None))
    slow = sure if high == low else UNKNOWN  # a bound at the limit serves for both
    if high is not None and high != low:
        slow = _absolute(limits, *_slow(tail, high, known, allowed, beside is not None))
    return Finding(
        f"{limit.reason}TooHigh",
        where,
        Tested(slow.broken, sure.kept, sure.question, slow.near),
        open=lambda: _not_yet(f"the {limit.name} p95 is at most {latency_text(seconds)}", limits),
        said=lambda: f"{_slower(limit, tail, high)} is above the limit of {latency_text(seconds)} ({where})",
        figure=lambda: f"{_slower(limit, tail, low)}; limit {latency_text(seconds)}",
    )


def _latency_ratio(
    limits: Limits, limit: LatencyLimit, ratio: float, green: Figures, old: Figures | None, wait: bool
) -> Finding:
    reason, tail = f"{limit.reason}Increased", limit.figure(green)

    def open_() -> tuple[str, str]:
        return _not_yet(f"the {limit.name} p95 is at most {ratio:g} times the old revision's", limits)

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
    test = _relative(limits, mine, theirs, pair.increase, wait=wait)
    # What is tested lies near the 95th percentile: it counts only where that itself, as read from the histogram, is too high.
    if test.broken > 0 and (tail.p95 or 0.0) <= (blue.p95 or 0.0) * ratio:
        test = Tested(0.0, test.kept, test.question, test.near)
    return Finding(
        reason,
        limit.ratio_field,
        test,
        open=open_,
        said=lambda: (
            f"{_slower(limit, tail, pair.green)} is above {ratio:g} times the old revision's {latency_text(blue.p95 or 0.0)} "
            f"({theirs.rate:.1%} longer than {latency_text(blue.bounds[pair.blue])}; {limit.ratio_field})"
        ),
        figure=lambda: (
            f"{_slower(limit, tail, pair.green)}; old revision {latency_text(blue.p95 or 0.0)}; limit {ratio:g} times that"
        ),
        note=_left_out(limits, test, theirs, pair.increase),
    )


def _relative(limits: Limits, green: Share, blue: Share, increase: float, *, wait: bool) -> Tested:
    """It is not waited for where even PLENTY of requests of green would not show that the limit is kept: blue had too few, or
    they changed too much, and it gets no more."""
    allowed, broken = increase + limits.margin, more(green, blue, increase)
    close = near(green, blue.rate + increase)
    if not wait and best(blue, allowed) < limits.required.kept:
        return Tested(broken, math.inf, None, close)
    return Tested(broken, less(green, blue, allowed), Question(green, increase, allowed, blue), close)


def _left_out(limits: Limits, test: Tested, blue: Share, increase: float) -> str:
    """The note of what `_relative` does not wait for."""
    if test.question is not None:
        return ""
    few = best(replace(blue, drift=1.0), increase + limits.margin) < limits.required.kept
    return TOO_FEW_BEFORE if few else CHANGED_BEFORE


def _uncompared(
    reason: str, field: str, open_: Callable[[], tuple[str, str]], note: str, *, wait: bool = False
) -> Finding:
    """Where blue has no figures: these may still come while it gets requests."""
    return Finding(reason, field, UNKNOWN if wait else NOT_WAITED_FOR, open_, note="" if wait else note)


def _clumped(green: Share, blue: Share | None) -> Share:
    """Green's, which clumps at least as much as blue's: that has often been watched for longer. But no more than FIRST_CLUMP
    is taken over: after one long outage of blue nothing could be said of green."""
    if blue is None or blue.hits < MEASURED:
        return green
    clumping = min(blue.clumping, FIRST_CLUMP)
    return green if green.clumping >= clumping else Share(green.requests, green.hits, clumping)


def _slow(
    tail: Tail, bound: int, blue: Tail | None, allowed: float, beside: bool
) -> tuple[Share, float, float, Share | None]:
    """What `_absolute` asks for at a bound: green's share, which clumps as in `_clumped`, its limit, what is allowed, and
    blue's share at the same bound if it is of the same seconds."""
    mine = tail.at(bound)
    index = blue.from_above(tail.bounds[bound]) if blue is not None else None
    theirs = blue.at(index) if blue is not None and index is not None else None
    return _clumped(mine, theirs), SLOWEST, allowed, (theirs or Share()) if beside else None


def _unmeasured(limit: LatencyLimit, field: str) -> Finding:
    message = f"no replica of the revision reports its {limit.name}, which {field} limits"
    return Finding("", field, UNKNOWN, lambda: ("NothingMeasured", message))


def _not_yet(allowed: str, limits: Limits, green: Figures | None = None) -> tuple[str, str]:
    """`green`: where its failures are meant."""
    within = f"within {OBSERVE}.margin of {100 * limits.margin:g}%"
    blamed = green.blamed if green is not None else None
    one = f"; most failures are of replica {blamed[0]}" if blamed is not None else ""
    return "NotKnownYet", f"too few requests so far to show that {allowed}, {within}{one}"


def _errors(figures: Figures) -> str:
    return f"error rate {figures.failed.rate:.1%} ({figures.errors} of {figures.requests} requests)"


def _of_one(figures: Figures) -> str:
    if figures.blamed is None:
        return ""
    replica, failed = figures.blamed
    return f"; {failed} of the {figures.errors} failures are of replica {replica}"


def _slower(limit: LatencyLimit, tail: Tail, bound: int | None) -> str:
    p95 = f"{limit.name} p95 {latency_text(tail.p95 or 0.0)}"
    if bound is None:
        return p95
    share = tail.at(bound)
    return f"{p95} ({share.rate:.1%} of {share.requests:.0f} requests took longer than {latency_text(tail.bounds[bound])})"
