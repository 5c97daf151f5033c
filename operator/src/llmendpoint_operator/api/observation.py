"""The watch on live requests after a switch, and what the endpoint's users are promised.

A limit that is not set is not checked. Latencies are 95th percentiles.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .base import ApiModel, rule, rules

LATENCY_RULE = rule(
    "has(self.p95Seconds) || has(self.maxRatio)",
    "each latency limit of rollout.observe needs p95Seconds (in seconds) or maxRatio (relative to the old "
    "revision); for example ttft: {p95Seconds: 2}",
)
ERROR_RULE = rule(
    "has(self.max) || has(self.maxIncrease)",
    "rollout.observe.errorRate needs max (a share of the requests) or maxIncrease (relative to the old revision); "
    "for example errorRate: {max: 0.02}",
)
DURATION_RULE = rule(
    "self.duration <= self.maxDuration",
    "rollout.observe.maxDuration must not be below rollout.observe.duration; for example duration: 60 with "
    "maxDuration: 600",
)

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class OnInconclusive(StrEnum):
    """What happens if there were too few requests for a verdict."""

    PAUSE = "Pause"
    PROMOTE = "Promote"
    ROLLBACK = "Rollback"


class ErrorRateLimit(ApiModel, json_schema_extra=rules(ERROR_RULE)):
    """Limits on the share of requests that fail: those that end with a 5xx, a reset or a timeout. A 429 does not
    count as failed."""

    max: Annotated[float, Field(ge=0, le=1)] | None = None
    """Largest share of failed requests, from 0 to 1."""
    max_increase: Annotated[float, Field(ge=0, le=1)] | None = None
    """Largest increase of the share of failed requests, compared with the old revision. For example, if 0.5 % fail there,
    0.01 allows 1.5 %."""


class LatencyLimit(ApiModel, json_schema_extra=rules(LATENCY_RULE)):
    """Limits on one latency."""

    p95_seconds: Seconds | None = None
    """Largest 95th percentile, in seconds. If not set, the value of `spec.slo` for this latency."""
    max_ratio: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Largest ratio to the 95th percentile of the old revision; for example 1.5."""


class ObserveSpec(ApiModel, json_schema_extra=rules(DURATION_RULE)):
    """How live requests are observed after the switch, while the old revision keeps its pods for a rollback."""

    duration: Annotated[int, Field(ge=0, le=86_400)] = 60
    """Seconds of observation before the rollout is complete. 0 means no observation."""
    max_duration: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds after which an observation with too few requests ends without a verdict; see onInconclusive."""
    min_requests: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Smallest number of requests for a good verdict. If not set, the operator alone decides how many it needs."""
    control: Annotated[int, Field(ge=10, le=50)] | None = None
    """Percent of the requests that the old revision keeps while the new one is observed. Then both are compared over the
    same seconds, and a change of your traffic is not taken for a change of the revision. If not set, the new revision is
    compared with the old one before the switch. A canary compares both at each step without this field. It has no effect
    where the new pods have no room beside the old ones; see capacity."""
    false_rollback_rate: Annotated[float, Field(gt=0, lt=0.5)] = 0.01
    """Largest share of rollouts in which a revision that keeps all limits may be rolled back for a figure. All limits and
    all steps of a canary together keep it, however often the operator looks. The prompts of `verification` that are compared
    by Similarity keep it too, for themselves. It does not hold for onInconclusive and crashes."""
    miss_rate: Annotated[float, Field(gt=0, lt=0.5)] = 0.05
    """Largest share of rollouts in which the operator may find a revision good that breaks a limit by more than `margin`.
    It does not hold for a rollout without a verdict; see onInconclusive."""
    margin: Annotated[float, Field(gt=0, lt=0.5)] = 0.03
    """Share of the requests by which a confirmed revision may be worse than a limit. For example, with errorRate.max 0.02
    and margin 0.03 the operator has to be sure that at most 5 % of the requests fail. With p95Seconds it has to be sure
    that at most 8 % of the requests take longer. With maxIncrease and maxRatio the share of the new revision may be higher than
    that of the old one by the margin. A smaller margin needs more requests."""
    error_rate: ErrorRateLimit | None = None
    """Limits on the share of requests that fail: those that end with a 5xx, a reset or a timeout. A 429 does not
    count as failed. If not set, at most 2 % may fail."""
    ttft: LatencyLimit | None = None
    """Limits on the time to the first token."""
    itl: LatencyLimit | None = None
    """Limits on the time between two tokens."""
    on_inconclusive: OnInconclusive | None = None
    """What happens without a verdict. If not set, it depends on the limits. With a limit (errorRate, ttft, itl or
    spec.slo) it is Pause, after maxDuration. Without one it is Promote, after duration, so that an endpoint that
    gets no requests does not hold the accelerators of two revisions. `Pause`: both revisions keep their pods until
    there is a verdict, or until you call `kubectl llm rollout promote` or `abort`. `Promote`: the new revision
    takes over. `Rollback`: the old revision gets its requests back."""


class SloSpec(ApiModel):
    """Latencies that the endpoint should keep, as 95th percentiles."""

    ttft_seconds: Seconds | None = None
    """Time to the first token, in seconds. If not set, it has no limit."""
    itl_seconds: Seconds | None = None
    """Time between two tokens, in seconds. If not set, it has no limit."""
    e2e_seconds: Annotated[Seconds | None, Field(alias="e2eSeconds")] = None
    """Time of a whole request, in seconds. If not set, it has no limit."""
