"""How a new revision takes over: the part of an LLMEndpoint's spec that says it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from .base import ApiModel, rule, rules
from .observation import ObserveSpec
from .verification import VerificationSpec

SORTED_RULE = rule(
    "self.map(s, s.weight).isSorted()",
    "the weights of rollout.canary.steps must grow; for example weights 10, 25, 50",
)
CANARY_RULE = rule(
    "(self.strategy == 'Canary') == has(self.canary)",
    "rollout.strategy: Canary and rollout.canary.steps go together; write both, for example "
    "canary: {steps: [{weight: 10, duration: 60}]}, or neither",
)
CANARY_CAPACITY_RULE = rule(
    "self.strategy != 'Canary' || self.capacity in ['Auto', 'Surge']",
    "rollout.strategy: Canary needs pods of both revisions; write capacity: Auto or Surge",
)
RECREATE_RULE = rule(
    "self.strategy != 'Recreate' || self.capacity in ['Auto', 'Recreate']",
    "rollout.strategy: Recreate stops the old revision first; leave rollout.capacity out, or write strategy: BlueGreen",
)
MANUAL_RULE = rule(
    "self.promotion != 'Manual' || (self.strategy != 'Recreate' && self.capacity != 'Recreate')",
    "rollout.promotion: Manual with Recreate would hold all requests until somebody promotes; write promotion: Auto, or "
    "another strategy or capacity",
)


class Strategy(StrEnum):
    """How requests move to a new revision."""

    BLUE_GREEN = "BlueGreen"
    CANARY = "Canary"
    RECREATE = "Recreate"


class Capacity(StrEnum):
    """Where a new revision's pods find room."""

    AUTO = "Auto"
    SURGE = "Surge"
    IN_PLACE = "InPlace"
    RECREATE = "Recreate"


class CanaryStep(ApiModel):
    """One share of the requests for the new revision."""

    weight: Annotated[int, Field(ge=1, le=99)]
    """Percent of new requests."""
    duration: Annotated[int, Field(ge=0, le=86_400)] = 60
    """Seconds of watching, with the limits of `observe`."""


class CanarySpec(ApiModel):
    """Growing shares of the requests before the whole."""

    steps: Annotated[
        tuple[CanaryStep, ...],
        Field(min_length=1, max_length=20, json_schema_extra=rules(SORTED_RULE)),
    ]
    """The shares in order. After the last comes 100 %, watched as `observe` says."""


class RolloutSpec(
    ApiModel,
    json_schema_extra=rules(CANARY_RULE, CANARY_CAPACITY_RULE, RECREATE_RULE, MANUAL_RULE),
):
    """How a new revision takes over."""

    strategy: Strategy = Strategy.BLUE_GREEN
    """BlueGreen: all requests at once. Canary: in growing shares. Recreate: the old revision stops first."""
    capacity: Capacity = Capacity.AUTO
    """Where the new pods find room. Surge: beside the old ones. InPlace: by exchange in waves, requests by ready pods.
    Recreate: in place of all the old ones, requests wait in the gateway meanwhile (chart value gateway.holdSeconds). Auto: Surge; when a new pod stays unschedulable
    and no node is to come, InPlace. With a single replica, which answers, Auto waits for a node and never stops it: write
    Recreate where that is wanted."""
    min_available: Annotated[int, Field(ge=0, le=1000)] = 1
    """Smallest number of ready pods, of both revisions together, during an exchange in place. Where it leaves no pod to
    exchange, the rollout is given up after progressDeadlineSeconds."""
    unschedulable_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds for which a new pod may stay unschedulable before capacity Auto takes an old one's place, while no
    autoscaler says whether a node comes. Where one says that a node comes, or a scheduling gate holds the pod, it waits
    longer; where one says that none comes, it does not wait."""
    promotion: Literal["Auto", "Manual"] = "Auto"
    """Manual: a verified revision gets no requests before `kubectl llm rollout promote`."""
    verification: VerificationSpec = VerificationSpec()
    """Questions to a new revision before it gets requests."""
    observe: ObserveSpec = ObserveSpec()
    """The watch on live requests after the switch."""
    canary: CanarySpec | None = None
    """Shares of the requests, with strategy Canary."""
    scale_down_delay: Annotated[int, Field(ge=0, le=86_400)] = 10
    """Seconds for which the old revision keeps its pods at least after the new one has taken over; it gets no new
    requests then. Requests that still run afterwards have terminationGracePeriodSeconds to end."""
    abort_scale_down_delay: Annotated[int, Field(ge=0, le=86_400)] = 30
    """Seconds for which a revision that was rolled back keeps its pods, to be looked at."""
