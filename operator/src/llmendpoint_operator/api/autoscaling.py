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
    "autoscaling.schedules[].start and end are five fields of cron: minute, hour, day of the month, month, day of the "
    "week; for example '30 7 * * mon-fri'",
)
BOUNDS_RULE = rule(
    "self.minReplicas <= self.maxReplicas",
    "autoscaling.minReplicas may not be above autoscaling.maxReplicas; for example minReplicas: 1 with maxReplicas: 4",
)
IDLE_RULE = rule(
    "!has(self.idleReplicas) || self.idleReplicas < self.minReplicas",
    "autoscaling.idleReplicas must be below autoscaling.minReplicas, or be left out; for example idleReplicas: 0 with "
    "minReplicas: 2",
)
ACTIVATION_RULE = rule(
    "has(self.signals) ? (!has(self.signals.queueDepth) || self.activationThreshold <= self.signals.queueDepth.target) "
    "&& (!has(self.signals.concurrency) || self.activationThreshold <= self.signals.concurrency.target) "
    ": self.activationThreshold <= 4",
    "autoscaling.activationThreshold may not be above the target of queueDepth (4 where none is written) or concurrency: "
    "requests would wait for a replica that never comes; for example activationThreshold: 0",
)
SIGNALS_RULE = rule(
    "has(self.queueDepth) || has(self.concurrency) || has(self.kvCacheUtilization)",
    "autoscaling.signals needs queueDepth, concurrency or kvCacheUtilization; for example queueDepth: {target: 4}. ttft alone is "
    "not enough: it never lowers the number, and does not see requests that wait in the gateway",
)
FALLBACK_BOUNDS_RULE = rule(
    "!has(self.fallback) || self.fallback.replicas <= self.maxReplicas",
    "autoscaling.fallback.replicas may not be above autoscaling.maxReplicas",
)
SCHEDULE_RULE = rule(
    "has(self.minReplicas) || has(self.maxReplicas)",
    "autoscaling.schedules[] needs minReplicas, maxReplicas or both; for example minReplicas: 3",
)
SCHEDULE_BOUNDS_RULE = rule(
    "!has(self.schedules) || self.schedules.all(s, (has(s.minReplicas) ? s.minReplicas : self.minReplicas) <= "
    "(has(s.maxReplicas) ? s.maxReplicas : self.maxReplicas))",
    "in autoscaling.schedules minReplicas may not be above maxReplicas; where one of them is left out, the one of "
    "autoscaling itself holds",
)

SCHEDULE_PROVIDER_RULE = rule(
    "!has(self.schedules) || self.provider == 'builtin' || self.provider == 'none' || self.schedules.size() == 0",
    "autoscaling.schedules need provider: builtin",
)
KEDA_RULE = rule(
    "self.provider != 'keda' || !has(self.idleReplicas) || self.idleReplicas == 0",
    "autoscaling.idleReplicas can only be 0 with provider: keda",
)
HPA_RULE = rule(
    "self.provider != 'hpa' || (self.minReplicas > 0 && !has(self.idleReplicas) && !has(self.fallback))",
    "a HorizontalPodAutoscaler knows neither none nor idle replicas nor a fallback: with provider: hpa set "
    "autoscaling.minReplicas to 1 or more, and leave idleReplicas and fallback out",
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
    """Waiting requests for which one replica more is started; for example 4."""


class ConcurrencySignal(ApiModel):
    """Requests that wait or are answered."""

    target: Annotated[int, Field(ge=1, le=100_000)]
    """Requests for each replica."""


class KvCacheSignal(ApiModel):
    """Memory that running sequences hold, as the engines tell it."""

    target: Annotated[float, Field(gt=0, le=1)]
    """Share of the memory for keys and values that is to be in use, from 0 to 1; for example 0.8."""


class TtftSignal(ApiModel):
    """Time to the first token, as the engines measure it."""

    target: Annotated[float, Field(gt=0, le=3600)]
    """Seconds that its 95th percentile is to stay below; for example 1.5."""


class SignalsSpec(ApiModel, json_schema_extra=rules(SIGNALS_RULE)):
    """What the number of replicas follows; of several signals the largest number wins."""

    queue_depth: QueueDepthSignal | None = None
    """Waiting requests. It lowers the number only when what runs and waits fits the remaining replicas at 80 % of their
    sequences."""
    concurrency: ConcurrencySignal | None = None
    """Waiting and running requests; it needs no load figures of the engine."""
    kv_cache_utilization: KvCacheSignal | None = None
    """Memory in use for keys and values."""
    ttft: TtftSignal | None = None
    """Time to the first token: one replica more while its 95th percentile over the last minute is above the target, of 20
    requests at least, and requests share replicas. It never lowers the number."""


class ScalingPolicy(ApiModel):
    """How much may change within a period."""

    type: Literal["Pods", "Percent"]
    """Whether `value` counts replicas, or percent of those at the period's begin."""
    value: Annotated[int, Field(ge=1, le=100_000)]
    """The largest change."""
    period_seconds: Annotated[int, Field(ge=1, le=1800)]
    """Seconds."""


class ScalingRules(ApiModel):
    """How fast the number may change in one direction; as in a HorizontalPodAutoscaler."""

    stabilization_window_seconds: Annotated[int, Field(ge=0, le=3600)] | None = None
    """Seconds over which the most cautious recommendation is taken. Absent: 0 for scaleUp, 300 for scaleDown."""
    select_policy: Literal["Max", "Min", "Disabled"] = "Max"
    """Which policy holds when there are several: the one that allows the most (Max) or the least (Min). Disabled: no
    change in this direction."""
    policies: Annotated[tuple[ScalingPolicy, ...], Field(max_length=8)] = ()
    """Limits on the rate of change. Absent: none."""


class BehaviorSpec(ApiModel):
    """How fast the number of replicas may change."""

    scale_up: ScalingRules = ScalingRules()
    """Upwards."""
    scale_down: ScalingRules = ScalingRules()
    """Downwards."""


class FallbackSpec(ApiModel):
    """How many replicas there are while the load is unknown."""

    failure_threshold: Annotated[int, Field(ge=1, le=1000)] = 3
    """Polls in a row without any figure after which it holds."""
    replicas: Count
    """The number. With behavior currentReplicas it is ignored."""
    behavior: Literal[
        "static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"
    ] = "static"  # fmt: skip
    """static: `replicas`. currentReplicas: what there is. currentReplicasIfHigher: the larger of both.
    currentReplicasIfLower: the smaller of both."""


class Schedule(ApiModel, json_schema_extra=rules(SCHEDULE_RULE)):
    """Other bounds for a time that comes again."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name, as Events show it."""
    start: Cron
    """When it begins, as five fields of cron: `30 7 * * mon-fri`."""
    end: Cron
    """When it ends."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64)] = "UTC"
    """Name of a time zone, for example `Europe/Berlin`."""
    min_replicas: Count | None = None
    """Replicas at least, idle or not. Absent: as without the schedule."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Replicas at most. Absent: as without the schedule."""


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
    """How many replicas serve the model, by what callers ask for."""

    provider: Provider = Provider.BUILTIN
    """builtin: the operator decides, from what the gateways report; `spec.replicas` is only the first count. keda: a
    ScaledObject, and the operator as its external scaler. hpa: a HorizontalPodAutoscaler on the operator's recommendation.
    Both write `spec.replicas`, which a manifest then leaves out. none: nobody decides, and `spec.replicas` holds."""
    min_replicas: Count = 1
    """Replicas at least. 0: none while nobody calls; the first request waits in the gateway until one has loaded."""
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    """Replicas at most."""
    idle_replicas: Count | None = None
    """Replicas while nobody calls, where that is fewer than minReplicas."""
    activation_threshold: Annotated[int, Field(ge=0, le=100_000)] = 0
    """The endpoint is called while more requests than this wait or run."""
    cooldown_period: Annotated[int, Field(ge=0, le=86_400)] = 300
    """Seconds without calls after which the endpoint goes to idleReplicas, or to minReplicas where that is 0."""
    polling_interval: Annotated[int, Field(ge=1, le=3600)] = 5
    """Seconds between two decisions. A request that waits for an endpoint without replicas does not wait for the next."""
    signals: SignalsSpec | None = None
    """What the number of replicas follows. Absent: queueDepth with a target of 4."""
    behavior: BehaviorSpec = BehaviorSpec()
    """How fast the number of replicas may change."""
    fallback: FallbackSpec | None = None
    """How many replicas there are while the load is unknown. Absent: the number stays."""
    schedules: Annotated[tuple[Schedule, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """Other bounds at certain times. Where several hold, the largest of each bound does."""


class AutoscalingStatus(ApiModel):
    """The last decision on the number of replicas."""

    desired_replicas: int
    """Replicas that there shall be."""
    spec_replicas: int | None = None
    """`spec.replicas` as it was last seen: a change of it, as by `kubectl scale`, is followed once."""
    last_scaled_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When desiredReplicas last changed."""
    previous_replicas: int | None = None
    """What it was before."""
    reason: Annotated[str, Field(max_length=128)] | None = None
    """Why it changed, in one word."""
    message: Sentence | None = None
    """Why, with the figures of that moment."""
    handed_over_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """When provider keda or hpa took the place of builtin. desiredReplicas holds until spec.replicas reaches it, or the
    new scaler has followed its metric for 300 s."""
