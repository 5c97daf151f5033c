"""What an LLMEndpoint's spec allows a new revision, and how sure a verdict on it has to be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from llmendpoint_verdicts.shares import Required

from ...api import LLMEndpointSpec
from ...api.observation import LatencyLimit as SpecLatencyLimit
from .evidence import Figures
from .tails import Tail

OBSERVE = "spec.rollout.observe"

DEFAULT_ERROR_RATE = 0.02
"""Where spec.rollout.observe.errorRate says nothing."""


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """Of one 95th percentile. `seconds_field` is where the absolute limit was written."""

    name: str
    reason: str
    field: str
    figure: Callable[[Figures], Tail | None]
    seconds: float | None = None
    seconds_field: str = ""
    ratio: float | None = None

    @property
    def ratio_field(self) -> str:
        """Where the limit relative to blue was written."""
        return f"{OBSERVE}.{self.field}.maxRatio"


@dataclass(frozen=True)
class Limits:
    """What the spec asks for. `duration` in seconds; rates, `margin` and the rates of wrong verdicts are shares (0..1).
    `windows`: how many observations the rollout has, one for each step of a canary and one for the whole."""

    duration: float
    min_requests: int = 0
    error_rate: float | None = None
    error_rate_increase: float | None = None
    latencies: tuple[LatencyLimit, ...] = ()
    margin: float = 0.03
    false_rollback_rate: float = 0.01
    miss_rate: float = 0.05
    windows: int = 1

    @property
    def relative(self) -> bool:
        """Whether something is limited relative to the old revision."""
        return self.error_rate_increase is not None or any(
            limit.ratio is not None for limit in self.latencies
        )

    @cached_property
    def required(self) -> Required:
        """The evidence that a verdict needs: each limit is tested in each window; one of a latency may be two."""
        rates = (self.error_rate, self.error_rate_increase)
        parts = [one for limit in self.latencies for one in (limit.seconds, limit.ratio)]
        number = sum(one is not None for one in (*rates, *parts))
        return Required.of(number * self.windows, self.false_rollback_rate, self.miss_rate)


def find_limits(spec: LLMEndpointSpec, duration: float) -> Limits:
    """The spec's limits for a window of `duration` seconds: those of `rollout.observe`, else those of `slo`."""
    observe, slo, canary = spec.rollout.observe, spec.slo, spec.rollout.canary
    rate = observe.error_rate
    latencies = (
        _limit("time to first token", "TimeToFirstToken", "ttft", attrgetter("ttft"), observe.ttft, slo.ttft_seconds),
        _limit("inter-token latency", "InterTokenLatency", "itl", attrgetter("itl"), observe.itl, slo.itl_seconds),
        _limit("request latency", "RequestLatency", "e2e", attrgetter("e2e"), None, slo.e2e_seconds),
    )  # fmt: skip
    return Limits(
        duration=duration,
        min_requests=observe.min_requests or 0,
        error_rate=rate.max if rate is not None else DEFAULT_ERROR_RATE,
        error_rate_increase=rate.max_increase if rate is not None else None,
        latencies=tuple(limit for limit in latencies if limit is not None),
        margin=observe.margin,
        false_rollback_rate=observe.false_rollback_rate,
        miss_rate=observe.miss_rate,
        windows=1 + (len(canary.steps) if canary is not None else 0),
    )


def _limit(
    name: str,
    reason: str,
    field: str,
    figure: Callable[[Figures], Tail | None],
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
