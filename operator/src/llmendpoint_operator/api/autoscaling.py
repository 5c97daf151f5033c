"""How many replicas an endpoint has, decided by what its callers ask for: the part of the spec that says how, and the
part of the status that tells what was decided.

Between `minReplicas` and `maxReplicas` the words are those of a HorizontalPodAutoscaler, between none and one KEDA's.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from .base import ApiModel, map_list, rule, rules

_MINUTE, _HOUR = "[0-5]?[0-9]", "([01]?[0-9]|2[0-3])"
_DAY, _MONTH = "(0?[1-9]|[12][0-9]|3[01])", "(0?[1-9]|1[0-2]|[a-z]{3})"
_WEEKDAY = "([0-7]|[a-z]{3})"


def _field(value: str) -> str:
    """A list of values, ranges and steps."""
    item = f"([*]|{value}(-{value})?)(/[1-9][0-9]?)?"
    return f"{item}(,{item})*"


CRON_PATTERN = "^" + " +".join(map(_field, (_MINUTE, _HOUR, _DAY, _MONTH, _WEEKDAY))) + "$"

CRON_RULE = rule(
    f"self.matches('(?i){CRON_PATTERN}')",
    "autoscaling.schedules[].start and end need five fields of cron: minute, hour, day of the month, month, day "
    "of the week; for example '30 7 * * mon-fri'",
)
BOUNDS_RULE = rule(
    "self.minReplicas <= self.maxReplicas",
    "autoscaling.minReplicas must not be above autoscaling.maxReplicas; for example minReplicas: 1 with "
    "maxReplicas: 4",
)
IDLE_RULE = rule(
    "!has(self.idleReplicas) || self.idleReplicas < self.minReplicas",
    "autoscaling.idleReplicas must be below autoscaling.minReplicas; for example idleReplicas: 0 with "
    "minReplicas: 2. Leave it out if an idle endpoint should keep minReplicas",
)
ACTIVATION_RULE = rule(
    "has(self.signals) ? (!has(self.signals.queueDepth) || self.activationThreshold <= self.signals.queueDepth.target) "
    "&& (!has(self.signals.concurrency) || self.activationThreshold <= self.signals.concurrency.target) "
    ": self.activationThreshold <= 4",
    "autoscaling.activationThreshold must not be above the target of queueDepth (4 if you set none) or of "
    "concurrency, because requests would wait for a replica that never starts; for example activationThreshold: 0",
)
SIGNALS_RULE = rule(
    "has(self.queueDepth) || has(self.concurrency) || has(self.kvCacheUtilization)",
    "autoscaling.signals needs queueDepth, concurrency or kvCacheUtilization; for example queueDepth: {target: "
    "4}. ttft alone is not enough: it never lowers the number of replicas, and it does not count requests that "
    "wait in the gateway",
)
FALLBACK_BOUNDS_RULE = rule(
    "!has(self.fallback) || self.fallback.replicas <= self.maxReplicas",
    "autoscaling.fallback.replicas must not be above autoscaling.maxReplicas; for example replicas: 2 with "
    "maxReplicas: 4",
)
SCHEDULE_RULE = rule(
    "has(self.minReplicas) || has(self.maxReplicas)",
    "each of autoscaling.schedules needs minReplicas, maxReplicas or both; for example minReplicas: 3",
)
SCHEDULE_BOUNDS_RULE = rule(
    "!has(self.schedules) || self.schedules.all(s, (has(s.minReplicas) ? s.minReplicas : self.minReplicas) <= "
    "(has(s.maxReplicas) ? s.maxReplicas : self.maxReplicas))",
    "in each of autoscaling.schedules, minReplicas must not be above maxReplicas; if a schedule leaves out one of "
    "them, the value of autoscaling itself applies",
)

SCHEDULE_PROVIDER_RULE = rule(
    "!has(self.schedules) || self.provider == 'builtin' || self.provider == 'none' || self.schedules.size() == 0",
    "autoscaling.schedules need provider: builtin; leave them out with keda or hpa",
)
KEDA_RULE = rule(
    "self.provider != 'keda' || !has(self.idleReplicas) || self.idleReplicas == 0",
    "with provider: keda, autoscaling.idleReplicas can only be 0; write 0 or leave it out",
)
HPA_RULE = rule(
    "self.provider != 'hpa' || (self.minReplicas > 0 && !has(self.idleReplicas) && !has(self.fallback))",
    "with provider: hpa, set autoscaling.minReplicas to 1 or more, and leave idleReplicas and fallback out: a "
    "HorizontalPodAutoscaler supports neither zero replicas nor these fields",
)

Count = Annotated[int, Field(ge=0, le=1000)]
Sentence = Annotated[str, Field(max_length=2048)]
Cron = Annotated[str, Field(min_length=9, max_length=128, json_schema_extra=rules(CRON_RULE))]


class Provider(StrEnum):
    """Who decides on the number of replicas."""

    BUILTIN = "builtin"
    KEDA = "keda"
    HPA = "hpa"
    NONE = "none"


class QueueDepthSignal(ApiModel):
    """Requests that wait: in the gateways, and in replicas that are full."""

    target: Annotated[int, Field(ge=1, le=100_000)]
    """Number of waiting requests for which the scaler adds one replica; for example 4."""


class ConcurrencySignal(ApiModel):
    """Requests that wait or run."""

    target: Annotated[int, Field(ge=1, le=100_000)]
    """Number of waiting and running requests for each replica; for example 8."""


class KvCacheSignal(ApiModel):
    """Memory of the KV cache that running requests use, as the engines report it."""

    target: Annotated[float, Field(gt=0, le=1)]
    """Share of the KV cache memory that requests should use, above 0 and up to 1; for example 0.8."""


class TtftSignal(ApiModel):
    """Time to the first token, as the engines measure it."""

    target: Annotated[float, Field(gt=0, le=3600)]
    """Seconds. The 95th percentile of the time to the first token should stay below this; for example 1.5."""


class SignalsSpec(ApiModel, json_schema_extra=rules(SIGNALS_RULE)):
    """What the number of replicas follows. If there are several signals, the largest number applies."""

    queue_depth: QueueDepthSignal | None = None
    """Follow the number of waiting requests. The scaler removes replicas only if all waiting and running requests
    fit into the remaining replicas at 80 % of their sequences (`engine.maxNumSeqs`)."""
    concurrency: ConcurrencySignal | None = None
    """Follow the number of waiting and running requests. This signal needs no load figures from the engine."""
    kv_cache_utilization: KvCacheSignal | None = None
    """Follow the KV cache memory in use."""
    ttft: TtftSignal | None = None
    """Follow the time to the first token. The scaler adds one replica while the 95th percentile of the last minute
    is above the target. This needs at least 20 requests in that minute, and more requests than replicas. The signal
    never removes replicas."""


class ScalingPolicy(ApiModel):
    """A limit on how much the number of replicas may change within a period."""

    type: Literal["Pods", "Percent"]
    """What `value` counts. `Pods`: replicas. `Percent`: percent of the replicas at the start of the period."""
    value: Annotated[int, Field(ge=1, le=100_000)]
    """Largest change within the period."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Length of the period in seconds."""


class ScalingRules(ApiModel):
    """How fast the number of replicas may change in one direction, as in a HorizontalPodAutoscaler."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Seconds of past recommendations that the scaler looks at. It follows the most cautious of them. If not set: 0
    for scaleUp, 300 for scaleDown."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    """Which policy applies if there are several. `Max`: the policy that allows the largest change. `Min`: the
    policy that allows the smallest change. `Disabled`: no change in this direction."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(max_length=8)] = ()
    """Limits on the rate of change. If not set, the rate has no limit."""


class BehaviorSpec(ApiModel):
    """How fast the number of replicas may change."""

    scale_up: ScalingRules = ScalingRules()
    """How fast replicas may be added."""
    scale_down: ScalingRules = ScalingRules()
    """How fast replicas may be removed."""


class FallbackSpec(ApiModel):
    """Number of replicas while the load is unknown."""

    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 3
    """Number of polls in a row without load figures after which the fallback applies."""
    replicas: Count
    """Number of replicas while the fallback applies. With behavior currentReplicas this number has no effect."""
    behavior: Literal[
        "static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"
    ] = "static"  # fmt: skip
    """Which number applies. `static`: `replicas`. `currentReplicas`: the current number. `currentReplicasIfHigher`:
    the larger of the two. `currentReplicasIfLower`: the smaller of the two."""


class Schedule(ApiModel, json_schema_extra=rules(SCHEDULE_RULE)):
    """Other bounds for a time that repeats, for example for office hours."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the schedule. Events show it."""
    start: Cron
    """When the schedule begins, as five fields of cron (minute, hour, day of the month, month, day of the week);
    for example `30 7 * * mon-fri`."""
    end: Cron
    """When the schedule ends, in the same form as `start`."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Time zone of `start` and `end`; for example `Europe/Berlin`."""
    min_replicas: Count | None = None
    """Smallest number of replicas during the schedule. It applies to an idle endpoint too. If not set, the schedule
    does not change it."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Largest number of replicas during the schedule. If not set, the schedule does not change it."""


class AutoscalingSpec(
    ApiModel,
    json_schema_extra=rules(
        BOUNDS_RULE,
        IDLE_RULE,
        ACTIVATION_RULE,
        FALLBACK_BOUNDS_RULE,
        SCHEDULE_BOUNDS_RULE,
        SCHEDULE_PROVIDER_RULE,
        KEDA_RULE,
        HPA_RULE,
    ),
):
    """How the number of replicas follows the load."""

    provider: Provider = Provider.BUILTIN
    """Who sets the number of replicas. With keda and hpa that autoscaler writes `spec.replicas`, so leave
    `spec.replicas` out of your manifest. `builtin`: the operator, from the load that the gateways report;
    `spec.replicas` is only the first count. `keda`: KEDA, by a ScaledObject that the operator makes; the operator
    is its external scaler. `hpa`: a HorizontalPodAutoscaler that the operator makes; it follows the operator's
    recommendation. `none`: nobody; `spec.replicas` applies."""
    min_replicas: Count = 1
    """Smallest number of replicas. With 0, an endpoint that gets no requests has no replica; the next request waits
    in the gateway until a replica has loaded the model."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Largest number of replicas."""
    idle_replicas: Count | None = None
    """Number of replicas while the endpoint is idle. It must be below minReplicas. If not set, an idle endpoint
    keeps minReplicas."""
    activation_threshold: Annotated[int, Field(ge=0, le=100_000)] = 0
    """Number of waiting and running requests up to which the endpoint counts as idle."""
    cooldown_period: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Seconds for which the endpoint must be idle before it goes to idleReplicas, or to 0 if minReplicas is 0."""
    polling_interval: Annotated[int, Field(ge=1, le=3600)] = 5
    """Seconds between two decisions. A request for an endpoint without replicas starts a replica at once; it does
    not wait for the next decision."""
    signals: SignalsSpec | None = None
    """What the number of replicas follows. If there are several signals, the largest number applies. If not set:
    queueDepth with target 4."""
    behavior: BehaviorSpec = BehaviorSpec()
    """How fast the number of replicas may change."""
    fallback: FallbackSpec | None = None
    """Number of replicas while the load is unknown. If not set, the number does not change during this time."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """Other bounds at certain times. If several schedules apply at once, the largest minReplicas and the largest
    maxReplicas apply."""


class AutoscalingStatus(ApiModel):
    """The last decision about the number of replicas."""

    desired_replicas: int
    """Number of replicas that the scaler wants."""
    spec_replicas: int | None = None
    """Value of `spec.replicas` that the operator saw last. The scaler follows a change of it once, for example
    after `kubectl scale`."""
    last_scaled_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When desiredReplicas last changed."""
    previous_replicas: int | None = None
    """Value of desiredReplicas before that change."""
    reason: Annotated[str, Field(max_length=128)] | None = None
    """Why it changed, in one word."""
    message: Sentence | None = None
    """Why it changed, with the figures of that moment."""
    handed_over_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When provider changed from builtin to keda or hpa. desiredReplicas stays until `spec.replicas` reaches it, or
    until the new scaler has followed its metric for 300 seconds."""
