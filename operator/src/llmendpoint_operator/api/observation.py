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
    "a latency limit of rollout.observe needs p95Seconds (absolute) or maxRatio (to the old revision's); for example "
    "ttft: {p95Seconds: 2}",
)
ERROR_RULE = rule(
    "has(self.max) || has(self.maxIncrease)",
    "rollout.observe.errorRate needs max (absolute) or maxIncrease (over the old revision's); for example "
    "errorRate: {max: 0.02}",
)
DURATION_RULE = rule(
    "self.duration <= self.maxDuration",
    "rollout.observe.maxDuration may not be shorter than rollout.observe.duration; for example duration: 60 with "
    "maxDuration: 600",
)

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class OnInconclusive(StrEnum):
    """What follows when there was too little traffic for a verdict."""

    PAUSE = "Pause"
    PROMOTE = "Promote"
    ROLLBACK = "Rollback"


class ErrorRateLimit(ApiModel, json_schema_extra=rules(ERROR_RULE)):
    """Limits on the share of requests that fail: those that end with a 5xx, a reset or a timeout. 429 is no error."""

    max: Annotated[float, Field(ge=0, le=1)] | None = None
    """Largest share, from 0 to 1."""
    max_increase: Annotated[float, Field(ge=0, le=1)] | None = None
    """Largest share above the old revision's own before the switch: 0.01 with 0.5 % before allows 1.5 %."""


class LatencyLimit(ApiModel, json_schema_extra=rules(LATENCY_RULE)):
    """Limits on one latency."""

    p95_seconds: Seconds | None = None
    """Largest 95th percentile. Absent: what `spec.slo` says of this latency."""
    max_ratio: Annotated[float, Field(ge=1, le=1000)] | None = None
    """Largest ratio to the old revision's own 95th percentile before the switch."""


class ObserveSpec(ApiModel, json_schema_extra=rules(DURATION_RULE)):
    """The watch on live requests after the switch, while the old revision's pods are kept for a way back."""

    duration: Annotated[int, Field(ge=0, le=86_400)] = 60
    """Seconds of watching before the rollout is complete. 0: no watching."""
    max_duration: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds after which a watch with too little traffic ends without a verdict; see onInconclusive."""
    min_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Requests without which there is no verdict, neither good nor bad."""
    error_rate: ErrorRateLimit | None = None
    """Limits on failing requests. Absent: at most 2 % may fail."""
    ttft: LatencyLimit | None = None
    """Limits on the time to the first token."""
    itl: LatencyLimit | None = None
    """Limits on the time between two tokens."""
    on_inconclusive: OnInconclusive | None = None
    """What happens without a verdict. Pause: both revisions keep their pods until there is a verdict, or
    `kubectl llm rollout promote` or `abort`. Promote and Rollback decide by themselves. Absent: Pause after maxDuration where a limit is set
    (errorRate, ttft, itl or spec.slo); where none is, Promote after duration, so that an endpoint which nobody calls
    does not hold the accelerators of two revisions."""


class SloSpec(ApiModel):
    """What the endpoint's users are promised: 95th percentiles. Rollouts, alerts and goodput read them here."""

    ttft_seconds: Seconds | None = None
    """Time to the first token."""
    itl_seconds: Seconds | None = None
    """Time between two tokens."""
    e2e_seconds: Annotated[Seconds | None, Field(alias="e2eSeconds")] = None
    """Time of a whole request."""
