"""How a new revision takes over: the part of an LLMEndpoint's spec that says it, and the part of its status that tells
how far it is.

A limit that is not set is not checked. Latencies are 95th percentiles.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from .base import ApiModel, map_list, rule, rules, set_list

REGEX_RULE = rule(
    "''.matches(self) || !''.matches(self)",
    "rollout.verification.prompts[].expect.matches must be a regular expression in RE2's syntax (no look-around, no "
    "back-references); for example (?i)paris",
)
EXPECT_RULE = rule(
    "has(self.contains) || has(self.matches) || has(self.equals)",
    "rollout.verification.prompts[].expect needs contains, matches or equals; for example expect: {contains: [Paris]}",
)
PROMPT_RULE = rule(
    "has(self.expect) || has(self.compare)",
    "rollout.verification.prompts[] needs expect (what the answer must hold) or compare (with what the old revision "
    "answers); for example expect: {contains: [Paris]}",
)
JUDGE_RULE = rule(
    "self.mode == 'Judge' ? has(self.endpoint) : !has(self.endpoint) && !has(self.instruction)",
    "rollout.verification.prompts[].compare with mode: Judge needs endpoint: <namespace>/<name> or the base URL of an "
    "OpenAI API; the other modes take neither endpoint nor instruction",
)
SIMILARITY_RULE = rule(
    "self.mode == 'Similarity' || !has(self.minSimilarity)",
    "rollout.verification.prompts[].compare.minSimilarity belongs to mode: Similarity; write that mode or leave it out",
)
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

Seconds = Annotated[float, Field(gt=0, le=86_400)]


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


class OnInconclusive(StrEnum):
    """What follows when there was too little traffic for a verdict."""

    PAUSE = "Pause"
    PROMOTE = "Promote"
    ROLLBACK = "Rollback"


class Expectation(ApiModel, json_schema_extra=rules(EXPECT_RULE)):
    """What an answer must be like; all that is given must hold."""

    contains: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=1024)], ...],
        Field(min_length=1, max_length=16, json_schema_extra=set_list()),
    ] | None = None  # fmt: skip
    """Texts that must all occur in the answer, in this spelling."""
    matches: Annotated[
        str, Field(min_length=1, max_length=512, json_schema_extra=rules(REGEX_RULE))
    ] | None = None  # fmt: skip
    """Regular expression (RE2) that must match somewhere in the answer; `^` and `$` bind it to the ends."""
    equals: Annotated[str, Field(min_length=1, max_length=8192)] | None = None
    """The whole answer, without white space at its ends."""


class Comparison(ApiModel, json_schema_extra=rules(JUDGE_RULE, SIMILARITY_RULE)):
    """How the answer must compare with what the old revision answers to the same prompt. Skipped for a first revision."""

    mode: Literal["Exact", "Similarity", "Judge"]
    """Exact: the same text. Similarity: at least `minSimilarity`. Judge: another model says whether the new answer is
    as good."""
    min_similarity: Annotated[float, Field(ge=0, le=1)] | None = None
    """Least similarity of the two texts, from 0 to 1 (Similarity). Absent: 0.8."""
    endpoint: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """The judge: `<namespace>/<name>` of an LLMEndpoint, or the base URL of an OpenAI API (Judge)."""
    instruction: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    """What the judge is told to look at, in your words (Judge)."""


class Prompt(ApiModel, json_schema_extra=rules(PROMPT_RULE)):
    """One question that a new revision must answer well before it gets requests."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """Name of the prompt, as conditions and Events show it."""
    prompt: Annotated[str, Field(min_length=1, max_length=8192)]
    """The question, sent as one user message with temperature 0."""
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    """Tokens of the answer at most."""
    expect: Expectation | None = None
    """What the answer must be like."""
    compare: Comparison | None = None
    """How the answer must compare with the old revision's."""


class VerificationSpec(ApiModel):
    """Questions to a new revision before it gets requests. Without prompts, the warm-up generation that makes a pod
    Ready is the whole verification."""

    prompts: Annotated[tuple[Prompt, ...], Field(max_length=16, json_schema_extra=map_list("name"))] = ()
    """The questions. The first that is answered badly rejects the revision."""
    timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds in which each must be answered."""
    verify_at_zero: bool = True
    """Whether a new revision of an endpoint that is scaled to zero starts one replica to be verified, and goes back to
    zero after."""


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
    """Seconds of watching before the new revision is taken for good. 0: no watching."""
    max_duration: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds after which too little traffic is taken for no verdict; see onInconclusive."""
    min_requests: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Requests without which there is no verdict, neither good nor bad."""
    error_rate: ErrorRateLimit | None = None
    """Limits on failing requests. Absent: at most 2 % may fail."""
    ttft: LatencyLimit | None = None
    """Limits on the time to the first token."""
    itl: LatencyLimit | None = None
    """Limits on the time between two tokens."""
    on_inconclusive: OnInconclusive | None = None
    """What follows on no verdict. Pause: both revisions keep their pods until there is a verdict, or
    `kubectl llm rollout promote` or `abort`. Promote and Rollback decide by themselves. Absent: Pause after maxDuration where a limit is set
    (errorRate, ttft, itl or spec.slo); where none is, Promote after duration, so that an endpoint which nobody calls
    does not hold the accelerators of two revisions."""


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
    Recreate: in place of all the old ones, requests wait in the gateway meanwhile (chart value gateway.holdSeconds). Auto: Surge; when a new pod stays unschedulable,
    InPlace, or Recreate with a single replica (with promotion: Manual it waits for room)."""
    min_available: Annotated[int, Field(ge=0, le=1000)] = 1
    """Ready pods of both revisions together that an exchange in place never goes below. Where it leaves no pod to
    exchange, the rollout is given up after progressDeadlineSeconds."""
    unschedulable_seconds: Annotated[int, Field(ge=0, le=86_400)] = 30
    """Seconds for which a new pod may stay unschedulable before capacity Auto takes an old one's place."""
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


class SloSpec(ApiModel):
    """What the endpoint's users are promised: 95th percentiles. Rollouts, alerts and goodput read them here."""

    ttft_seconds: Seconds | None = None
    """Time to the first token."""
    itl_seconds: Seconds | None = None
    """Time between two tokens."""
    e2e_seconds: Annotated[Seconds | None, Field(alias="e2eSeconds")] = None
    """Time of a whole request."""


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


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
Hash = Annotated[str, Field(max_length=63)]
Sentence = Annotated[str, Field(max_length=2048)]


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
    """The revision that requests come from, and go back to."""
    green: Hash | None = None
    """The revision that shall get them."""
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
    """A revision other than the spec's own, after `undo` or `restart`. It ends with the next change of the spec."""

    inputs: Hash
    """Hash of what the spec asked for when it began."""
    revision: Hash
    """The revision in its place."""
    salt: Annotated[str, Field(max_length=128)] | None = None
    """Of a restart: the request's id, which makes the revision's hash another one."""
