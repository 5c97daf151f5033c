"""Whether a revision that gets requests does well: its figures against limits, and against the old revision's.

| there is | verdict |
|---|---|
| fewer requests than minRequests | TooLittle |
| a limit that is broken | Bad, at once |
| a limit whose figure nobody measured | TooLittle |
| less time than duration | TooLittle |
| otherwise | Good |

Relative limits are left out when the old revision had fewer than minRequests requests itself, or did not report the
figure, and the verdict says so.
Messages of TooLittle hold no figure that moves: they stand in the status while the figures change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from ...api import LLMEndpointSpec
from ...api.observation import LatencyLimit as SpecLatencyLimit
from ..sentences import latency_text
from .evidence import Figures

OBSERVE = "spec.rollout.observe"

DEFAULT_ERROR_RATE = 0.02
"""Where spec.rollout.observe.errorRate says nothing."""

ROUNDING = 1e-9
"""A figure at its limit is within it, whatever binary fractions make of 0.05 - 0.04."""


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
class LatencyLimit:
    """Of one 95th percentile. `seconds_field` is where the absolute limit was written."""

    name: str
    reason: str
    field: str
    figure: Callable[[Figures], float | None]
    seconds: float | None = None
    seconds_field: str = ""
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """What the spec asks for. `duration` in seconds; rates are shares (0..1)."""

    duration: float
    min_requests: int
    error_rate: float | None = None
    error_rate_increase: float | None = None
    latencies: tuple[LatencyLimit, ...] = ()

    @property
    def relative(self) -> bool:
        """Whether something is limited relative to the old revision."""
        return self.error_rate_increase is not None or any(
            limit.ratio is not None for limit in self.latencies
        )


_NOT_COMPARED = "; not compared with the old revision, which had too few requests before the switch"
_NOT_REPORTED = "; {} not compared with the old revision, which did not report it"


def find_limits(spec: LLMEndpointSpec, duration: float) -> Limits:
    """The spec's limits for a window of `duration` seconds: those of `rollout.observe`, else those of `slo`."""
    observe, slo = spec.rollout.observe, spec.slo
    rate = observe.error_rate
    latencies = (
        _limit("time to first token", "TimeToFirstToken", "ttft", lambda figures: figures.ttft_p95, observe.ttft, slo.ttft_seconds),
        _limit("inter-token latency", "InterTokenLatency", "itl", lambda figures: figures.itl_p95, observe.itl, slo.itl_seconds),
        _limit("request latency", "RequestLatency", "e2e", lambda figures: figures.e2e_p95, None, slo.e2e_seconds),
    )  # fmt: skip
    return Limits(
        duration=duration,
        min_requests=observe.min_requests,
        error_rate=rate.max if rate is not None else DEFAULT_ERROR_RATE,
        error_rate_increase=rate.max_increase if rate is not None else None,
        latencies=tuple(limit for limit in latencies if limit is not None),
    )


def _limit(
    name: str,
    reason: str,
    field: str,
    figure: Callable[[Figures], float | None],
    written: SpecLatencyLimit | None,
    slo: float | None,
) -> LatencyLimit | None:
    seconds = written.p95_seconds if written is not None else None
    where = f"{OBSERVE}.{field}.p95Seconds" if seconds is not None else f"spec.slo.{field}Seconds"
    seconds = slo if seconds is None else seconds
    ratio = written.max_ratio if written is not None else None
    if seconds is None and ratio is None:
        return None
    return LatencyLimit(name, reason, field, figure, seconds, where, ratio)


def judge(limits: Limits, green: Figures, baseline: Figures | None, elapsed: float) -> Verdict:
    """The verdict over `green`, `elapsed` seconds after its observation began; `baseline` is the old revision's."""
    if green.requests < limits.min_requests:
        message = f"fewer than {limits.min_requests} requests ({OBSERVE}.minRequests)"
        return Verdict(Result.TOO_LITTLE, "TooFewRequests", message)
    comparable = baseline if baseline is not None and baseline.requests >= limits.min_requests else None
    for breach in (*_errors(limits, green, comparable), *_latencies(limits, green, comparable)):
        return breach
    for missing in _unmeasured(limits, green, comparable):
        return missing
    if min(elapsed, elapsed if green.seconds is None else green.seconds) < limits.duration:
        message = f"within its limits; observed for {limits.duration:.0f} s ({OBSERVE}.duration)"
        return Verdict(Result.TOO_LITTLE, "StillObserving", message)
    return Verdict(Result.GOOD, "WithinLimits", _summary(limits, green) + _not_compared(limits, comparable))


def error_rate(figures: Figures) -> float:
    """Share of the requests that failed."""
    return figures.errors / figures.requests if figures.requests else 0.0


def _errors(limits: Limits, green: Figures, baseline: Figures | None) -> Iterator[Verdict]:
    rate = error_rate(green)
    said = f"error rate {rate:.1%} ({green.errors} of {green.requests} requests)"
    if limits.error_rate is not None and rate > limits.error_rate + ROUNDING:
        message = f"{said} is above the limit of {limits.error_rate:.1%} ({OBSERVE}.errorRate.max)"
        yield Verdict(Result.BAD, "ErrorRateTooHigh", message)
    if baseline is None or limits.error_rate_increase is None:
        return
    if rate - error_rate(baseline) > limits.error_rate_increase + ROUNDING:
        message = (
            f"{said} is more than {limits.error_rate_increase:.1%} above the old revision's "
            f"{error_rate(baseline):.1%} ({OBSERVE}.errorRate.maxIncrease)"
        )
        yield Verdict(Result.BAD, "ErrorRateIncreased", message)


def _latencies(limits: Limits, green: Figures, baseline: Figures | None) -> Iterator[Verdict]:
    for limit in limits.latencies:
        now = limit.figure(green)
        if now is None:
            continue
        said = f"{limit.name} p95 {latency_text(now)}"
        if limit.seconds is not None and now > limit.seconds:
            message = f"{said} is above the limit of {latency_text(limit.seconds)} ({limit.seconds_field})"
            yield Verdict(Result.BAD, f"{limit.reason}TooHigh", message)
        before = limit.figure(baseline) if baseline is not None else None
        if limit.ratio is not None and before is not None and now > before * limit.ratio:
            message = (
                f"{said} is above {limit.ratio:g} times the old revision's {latency_text(before)} "
                f"({OBSERVE}.{limit.field}.maxRatio)"
            )
            yield Verdict(Result.BAD, f"{limit.reason}Increased", message)


def _unmeasured(limits: Limits, green: Figures, baseline: Figures | None) -> Iterator[Verdict]:
    for limit in limits.latencies:
        compared = limit.ratio is not None and baseline is not None and limit.figure(baseline) is not None
        if limit.figure(green) is not None or (limit.seconds is None and not compared):
            continue
        field = limit.seconds_field if limit.seconds is not None else f"{OBSERVE}.{limit.field}.maxRatio"
        message = f"no replica of the revision reports its {limit.name}, which {field} limits"
        yield Verdict(Result.TOO_LITTLE, "NothingMeasured", message)


def _not_compared(limits: Limits, baseline: Figures | None) -> str:
    """What of the relative limits was left out."""
    if not limits.relative:
        return ""
    if baseline is None:
        return _NOT_COMPARED
    relative = [limit for limit in limits.latencies if limit.ratio is not None]
    return "".join(_NOT_REPORTED.format(one.name) for one in relative if one.figure(baseline) is None)


def _summary(limits: Limits, green: Figures) -> str:
    parts = [f"error rate {error_rate(green):.1%} of {green.requests} requests"]
    for limit in limits.latencies:
        figure = limit.figure(green)
        if figure is not None:
            parts.append(f"{limit.name} p95 {latency_text(figure)}")
    return ", ".join(parts)
