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
    "the weights of rollout.canary.steps must grow from step to step; for example weights 10, 25, 50",
)
CANARY_RULE = rule(
    "(self.strategy == 'Canary') == has(self.canary)",
    "rollout.strategy: Canary and rollout.canary.steps go together; write both, for example "
    "canary: {steps: [{weight: 10, duration: 60}]}, or neither",
)
CANARY_CAPACITY_RULE = rule(
    "self.strategy != 'Canary' || self.capacity in ['Auto', 'Surge']",
    "rollout.strategy: Canary needs pods of both revisions at the same time; write capacity: Auto or Surge",
)
CONTROL_RULE = rule(
    "!has(self.observe.control) || (self.strategy != 'Recreate' && self.capacity in ['Auto', 'Surge'])",
    "rollout.observe.control needs pods of both revisions at the same time; write capacity: Auto or Surge and no "
    "strategy: Recreate, or leave control out",
)
RECREATE_RULE = rule(
    "self.strategy != 'Recreate' || self.capacity in ['Auto', 'Recreate']",
    "rollout.strategy: Recreate stops the old revision first, so other capacities do not go with it; leave "
    "rollout.capacity out, or write strategy: BlueGreen",
)
MANUAL_RULE = rule(
    "self.promotion != 'Manual' || (self.strategy != 'Recreate' && self.capacity != 'Recreate')",
    "rollout.promotion: Manual does not go with Recreate, because all requests would wait until you promote; "
    "write promotion: Auto, or another strategy or capacity",
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
    """Percent of new requests that the new revision gets."""
    duration: Annotated[int, Field(ge=0, le=86_400)] = 60
    """Seconds of observation at this step, with the limits of `observe`."""


class CanarySpec(ApiModel):
    """Growing shares of the requests for the new revision."""

    steps: Annotated[
        tuple[CanaryStep, ...],
        Field(min_length=1, max_length=20, json_schema_extra=rules(SORTED_RULE)),
    ]
    """The shares in order. After the last step the new revision gets 100 %, and `observe` applies."""


class RolloutSpec(
    ApiModel,
    json_schema_extra=rules(CANARY_RULE, CANARY_CAPACITY_RULE, CONTROL_RULE, RECREATE_RULE, MANUAL_RULE),
):
    """How a new revision replaces the old one."""

    strategy: Strategy = Strategy.BLUE_GREEN
    """How requests move to the new revision. `BlueGreen`: all at once. `Canary`: in growing shares; needs `canary`.
    `Recreate`: the old revision stops before the new one starts."""
    capacity: Capacity = Capacity.AUTO
    """Where the new pods get room. `Auto`: like Surge; if a new pod stays unschedulable and no node will come, like
    InPlace. With a single replica that answers, Auto waits for a node and never stops that replica; if you want it
    stopped, write Recreate. `Surge`: beside the old pods. `InPlace`: in place of old pods, in waves. Each revision
    gets requests in proportion to its ready pods. `Recreate`: in place of all old pods. Requests wait in the
    gateway meanwhile, for the chart value gateway.holdSeconds at most."""
    min_available: Annotated[int, Field(ge=0, le=1000)] = 1
    """Smallest number of ready pods, of both revisions together, while pods are exchanged in place. If this leaves
    no pod to exchange, the operator gives up the rollout after progressDeadlineSeconds."""
    unschedulable_seconds: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds for which a new pod may stay unschedulable before capacity Auto uses the room of an old pod. It
    counts while no autoscaler says whether a node comes. If an autoscaler says that a node comes, or a scheduling
    gate holds the pod, the operator waits longer. If an autoscaler says that no node comes, the operator does not
    wait."""
    promotion: Literal["Auto", "Manual"] = "Auto"
    """What a verified revision needs to get requests. `Auto`: nothing from you. With a limit relative to the old
    revision, it waits until that one has been measured. `Manual`: `kubectl llm rollout promote`."""
    verification: VerificationSpec = VerificationSpec()
    """Prompts that a new revision must answer well before it gets requests. Without prompts, the warm-up request
    that makes a pod Ready is the whole verification."""
    observe: ObserveSpec = ObserveSpec()
    """How live requests are observed after the switch, while the old revision keeps its pods for a rollback."""
    canary: CanarySpec | None = None
    """Growing shares of the requests for the new revision. Only with strategy Canary, which needs it."""
    scale_down_delay: Annotated[int, Field(ge=0, le=86_400)] = 10
    """Seconds for which the old revision keeps its pods after the new one has taken over, at least. It gets no new
    requests in this time. Requests that still run after it have terminationGracePeriodSeconds to end."""
    abort_scale_down_delay: Annotated[int, Field(ge=0, le=86_400)] = 30
    """Seconds for which a revision that was rolled back keeps its pods, so that you can look at them."""
