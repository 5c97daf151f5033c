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
    """Who gets new requests; gateways follow it and report its epoch."""

    epoch: int
    """Grows with every change of the assignment."""
    weights: Annotated[tuple[Weight, ...], Field(max_length=16, json_schema_extra=map_list("revision"))] = ()
    """Shares by revision; they sum to 100."""
    draining: Annotated[
        tuple[Annotated[str, Field(max_length=253)], ...],
        Field(max_length=1000, json_schema_extra=set_list()),
    ] = ()
    """Pods that get no new requests because they are about to be removed."""
    draining_since: Time | None = None
    """When a pod was last added to them; gateways have 10 s to follow."""


class BaselineStatus(ApiModel):
    """The old revision's own figures before the switch."""

    requests: int
    """Requests that ended."""
    errors: int
    """Those of them that failed."""
    ttft_p95_milliseconds: int | None = None
    """95th percentile of the time to the first token."""
    itl_p95_milliseconds: int | None = None
    """95th percentile of the time between two tokens."""


class RolloutStatus(ApiModel):
    """The rollout that goes on, or how the last one ended."""

    state: RolloutState
    """Where it is."""
    blue: Hash | None = None
    """The old revision, which a rollback returns to."""
    green: Hash | None = None
    """The new revision."""
    mode: Mode | None = None
    """Where the new pods find room."""
    started_at: Time | None = None
    """When it began."""
    state_since: Time | None = None
    """When `state` or `step` last changed."""
    progress_since: Time | None = None
    """From when spec.progressDeadlineSeconds counts; a verification has them for itself, from `stateSince`."""
    step: int | None = None
    """With a canary: which of its steps, from 0. In place: how many new pods are wanted so far."""
    weight: Annotated[int, Field(ge=1, le=100)] | None = None
    """With a canary: percent of new requests for the new revision at this step."""
    verified: bool | None = None
    """Whether the new revision has passed its verification."""
    promoted: bool | None = None
    """Whether it was promoted, by itself or by hand."""
    baseline: BaselineStatus | None = None
    """The old revision's figures at the switch."""
    message: Sentence | None = None
    """What it waits for, when that is something unusual."""


class RejectedStatus(ApiModel):
    """A revision that was rolled back. It is not tried again while the spec asks for it."""

    revision: Hash
    """Hash of the revision."""
    reason: Annotated[str, Field(max_length=128)]
    """The cause in one word."""
    message: Sentence
    """The cause with its figures."""
    at: Time
    """When."""


class RequestStatus(ApiModel):
    """The answer to the last request made by annotation `llmendpoint.io/request`."""

    id: Annotated[str, Field(max_length=128)]
    """The request's own id; each is answered once."""
    action: Annotated[str, Field(max_length=32)]
    """What was asked for."""
    outcome: Literal["Accepted", "Refused"]
    """Whether it is done."""
    message: Sentence
    """What follows, or why not."""


class OverrideStatus(ApiModel):
    """A revision other than the spec's own, after `restart` or its `undo`. It ends with the next change of the spec."""

    inputs: Hash
    """Hash of what the spec asked for when it began."""
    revision: Hash
    """The revision in its place."""
    salt: Annotated[str, Field(max_length=128)] | None = None
    """Of a restart: the request's id, which makes the revision's hash another one."""
