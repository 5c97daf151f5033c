"""How far a rollout is, and who gets requests: the part of an LLMEndpoint's status that tells."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from .base import ApiModel, map_list, set_list

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Hash = Annotated[str, Field(max_length=63)]
Sentence = Annotated[str, Field(max_length=2048)]


class RolloutState(StrEnum):
    """Where a rollout is."""

    IDLE = "Idle"
    PROVISIONING = "Provisioning"
    WARMING = "Warming"
    VERIFYING = "Verifying"
    AWAITING_PROMOTION = "AwaitingPromotion"
    SWITCHING = "Switching"
    OBSERVING = "Observing"
    DRAINING = "Draining"
    ROLLING_BACK = "RollingBack"
    ROLLED_BACK = "RolledBack"


class Mode(StrEnum):
    """Where the new pods of this rollout find room: what capacity came to."""

    SURGE = "Surge"
    IN_PLACE = "InPlace"
    RECREATE = "Recreate"


class Weight(ApiModel):
    """The share of one revision."""

    revision: Hash
    """Hash of the revision."""
    weight: Annotated[int, Field(ge=0, le=100)]
    """Percent of new requests."""


class TrafficStatus(ApiModel):
    """Which revision gets new requests. The gateways follow it and report its epoch."""

    epoch: int
    """Number of this assignment of requests to revisions. It grows with every change; the gateways report which one
    they follow."""
    weights: Annotated[tuple[Weight, ...], Field(max_length=16, json_schema_extra=map_list("revision"))] = ()
    """Shares of the revisions in percent. Their sum is 100."""
    draining: Annotated[
        tuple[Annotated[str, Field(max_length=253)], ...],
        Field(max_length=1000, json_schema_extra=set_list()),
    ] = ()
    """Pods that get no new requests, because the operator will remove them soon."""
    draining_since: Time | None = None
    """When a pod was last added to `draining`. The gateways have 10 seconds to follow."""


class SlowerStatus(ApiModel):
    """Requests that took longer than one bound of the engines' histograms."""

    seconds: float
    """The bound, in seconds."""
    requests: int
    """Number of requests that took longer."""
    clumping: float = 1
    """How many of these requests tell as much as one that is independent of the others."""


class LatencyStatus(ApiModel):
    """One latency of one revision."""

    requests: int
    """Number of values that were measured."""
    p95_seconds: float | None = None
    """95th percentile, in seconds."""
    slower: Annotated[
        tuple[SlowerStatus, ...], Field(max_length=16, json_schema_extra=map_list("seconds"))
    ] = ()
    """The bounds of the engines' histograms that are nearest to the 95th percentile. The revisions are compared at one of
    them."""
    drift: float | None = None
    """How many requests count as one, because this latency changed over the hours before the switch. As `drift` of
    `status.rollout.baseline`."""


class FiguresStatus(ApiModel):
    """Figures of one revision."""

    requests: int
    """Number of requests that ended."""
    errors: int
    """Number of these requests that failed."""
    clumping: float = 1
    """How many requests tell as much as one that is independent of the others. Where requests fail in groups of ten,
    it is 10."""
    drift: float | None = None
    """How many requests count as one, because the figures changed over the hours before the switch. Only in
    `status.rollout.baseline`. Not set if they changed no more than by chance, or were not counted for hours."""
    ttft: LatencyStatus | None = None
    """Time to the first token."""
    itl: LatencyStatus | None = None
    """Time between two tokens."""
    e2e: LatencyStatus | None = None
    """Time of a whole request."""


Evidence = Annotated[float, Field(ge=0, le=1)]


class LimitStatus(ApiModel):
    """The evidence about one limit so far."""

    field: Annotated[str, Field(max_length=128)]
    """The field of the spec that sets the limit."""
    broken: Evidence
    """Share of the evidence that a rollback needs. At 1 the operator rolls back."""
    kept: Evidence
    """Share of the evidence that a good verdict needs. At 1 the operator is sure that the limit is kept, within `margin`."""
    said: Sentence = ""
    """The figure and the limit, in words."""


class EvidenceStatus(ApiModel):
    """The evidence after some seconds of the observation."""

    seconds: float
    """Seconds of observation."""
    broken: Evidence
    """Largest share of the evidence for a rollback, of all limits."""
    kept: Evidence
    """Smallest share of the evidence for a good verdict, of all limits."""


class ObservationStatus(FiguresStatus):
    """What was counted of the new revision since this observation began, and what follows so far. The operator writes it
    every 10 seconds at most. After a restart it goes on from here."""

    at: Time
    """When this was written."""
    seconds: float
    """Seconds of observation so far, without the time in which no operator ran."""
    expected_requests: int | None = None
    """Number of requests of the new revision that a verdict takes in all, if they go on as so far. Not set if that cannot be
    said yet."""
    expected_seconds: float | None = None
    """Seconds until then, at the present traffic."""
    late: Sentence | None = None
    """What to change because the verdict would come after `observe.maxDuration`. Condition VerdictLate says the same."""
    limits: Annotated[tuple[LimitStatus, ...], Field(max_length=8, json_schema_extra=map_list("field"))] = ()
    """The evidence about each limit."""
    history: Annotated[
        tuple[EvidenceStatus, ...], Field(max_length=32, json_schema_extra=map_list("seconds"))
    ] = ()
    """The evidence over time."""
    old: FiguresStatus | None = None
    """Figures of the old revision of the same seconds, if it still gets requests."""


class RolloutStatus(ApiModel):
    """The current rollout, or how the last one ended."""

    state: RolloutState
    """State of the rollout. docs/concepts/rollouts.md explains the states."""
    blue: Hash | None = None
    """Hash of the old revision. A rollback returns to it."""
    green: Hash | None = None
    """Hash of the new revision."""
    mode: Mode | None = None
    """Where the new pods get room in this rollout: what `spec.rollout.capacity` led to."""
    started_at: Time | None = None
    """When the rollout began."""
    state_since: Time | None = None
    """When `state` or `step` last changed."""
    progress_since: Time | None = None
    """When the time of `spec.progressDeadlineSeconds` began. A verification has this time for itself, from
    `stateSince`."""
    step: int | None = None
    """With a canary: index of the current step, from 0. With `observe.control` alone: 0. In place: number of new pods that
    are wanted so far."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """With a canary or `observe.control`: percent of new requests that the new revision gets now."""
    verified: bool | None = None
    """Whether the new revision has passed its verification."""
    promoted: bool | None = None
    """Whether the new revision was promoted, by the operator or by you."""
    baseline: FiguresStatus | None = None
    """Figures of the old revision before the switch: of the last minutes, or of the last hours if these say more."""
    observation: ObservationStatus | None = None
    """What the observation of the new revision has come to so far."""
    message: Sentence | None = None
    """What the rollout waits for, if that is something unusual."""


class RejectedStatus(ApiModel):
    """A revision that was rolled back. The operator does not try it again while the spec describes it."""

    revision: Hash
    """Hash of the revision."""
    reason: Annotated[str, Field(max_length=128)]
    """The cause in one word."""
    message: Sentence
    """The cause with its figures."""
    at: Time
    """When it was rolled back."""


class RequestStatus(ApiModel):
    """The answer to the last request by annotation `llmendpoint.io/request`."""

    id: Annotated[str, Field(max_length=128)]
    """Id of the request. The operator answers each id once."""
    action: Annotated[str, Field(max_length=32)]
    """What was asked for, for example promote."""
    outcome: Literal["Accepted", "Refused"]
    """Whether the operator does what was asked for."""
    message: Sentence
    """What follows, or why the request was refused."""


class OverrideStatus(ApiModel):
    """A revision that runs in place of the one that the spec describes, after `restart` or its `undo`. It ends with
    the next change of the spec."""

    inputs: Hash
    """Hash of what the spec described when the override began."""
    revision: Hash
    """Hash of the revision that runs."""
    salt: Annotated[str, Field(max_length=128)] | None = None
    """Only after a restart: id of the request. It gives the revision a new hash."""
