"""Which inputs the next step computes, for a model that makes vectors; and how requests for them wait and end.

A step takes whole inputs, at most `max_batched_tokens` of tokens and `max_inputs` of them, but at least one. The requests
are served by their key, the lowest first:

    key = arrival - head start of its priority (see `queue`) + seconds of work that it has had

So a request with many inputs goes first while nobody has waited as long as it was served, and then shares the steps with
those that came later. A small request behind a large one does not wait for all of it, and no request waits forever. Pure:
time is an argument, and the model runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from llmendpoint_server.core.admission import DEADLINE_PASSED, DISPLACED, too_late
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.estimate import MAX_RETRY_AFTER, retry_after
from llmendpoint_server.core.pooling.request import Input, PoolingRequest, Vector
from llmendpoint_server.core.queue import Order, WaitingQueue, order_of
from llmendpoint_server.core.request import FinishReason, RequestOutput

_WEIGHT = 0.2
"""Of the newest step, in the mean time of a token."""


@dataclass(frozen=True, slots=True)
class PoolingConfig:
    """`max_inputs`, `max_batched_tokens`: of a step. `max_queued_requests`, `max_queued_tokens`: that may wait."""

    max_model_len: int
    vocab_size: int
    max_inputs: int
    max_batched_tokens: int
    max_queued_requests: int
    max_queued_tokens: int


@dataclass(slots=True, eq=False)
class Member:
    """A request in the engine. Inputs before `given` were computed, or are in the step that runs."""

    request: PoolingRequest
    order: Order
    left: int
    """tokens of the inputs that have no vector"""
    given: int = 0
    done: int = 0
    """inputs that have a vector"""
    served: float = 0.0
    """seconds of work"""
    begun: bool = False
    ready: bool = True

    @property
    def due(self) -> int:
        return self.left

    @property
    def key(self) -> Order:
        return self.order[0] + self.served, self.order[1]


@dataclass(frozen=True, slots=True)
class Row:
    member: Member
    index: int

    @property
    def input(self) -> Input:
        return self.member.request.inputs[self.index]


@dataclass(frozen=True, slots=True)
class PoolingBatch:
    rows: tuple[Row, ...]
    time: float


@dataclass(frozen=True, slots=True)
class StepResult:
    vectors: tuple[Vector, ...] = ()
    ends: tuple[RequestOutput, ...] = ()

    def __add__(self, other: StepResult) -> StepResult:
        return StepResult(self.vectors + other.vectors, self.ends + other.ends)


class PoolingScheduler:
    def __init__(self, config: PoolingConfig) -> None:
        self.config = config
        self.counters = Counters()
        self.draining = False
        self._queue = WaitingQueue[Member](config.max_queued_requests, config.max_queued_tokens)
        self._members: dict[str, Member] = {}
        self._arrivals = 0
        self._token_seconds = 0.0
        """the mean time of a token; 0 until it is known"""

    @property
    def waiting(self) -> int:
        return len(self._queue)

    @property
    def waiting_tokens(self) -> int:
        return self._queue.tokens

    @property
    def running(self) -> int:
        return len(self._members) - len(self._queue)

    @property
    def idle(self) -> bool:
        return not self._members

    @property
    def outstanding_tokens(self) -> int:
        return sum(member.left for member in self._members.values())

    def add(self, request: PoolingRequest, now: float) -> list[RequestOutput]:
        """Queue a request, or return why not. Also returns the ends of the requests that it displaces."""
        if request.id in self._members:
            raise ValueError(f"There is a request {request.id!r} already.")
        tokens = sum(len(one.tokens) for one in request.inputs)
        member = Member(request, order_of(request, self._arrivals), tokens)
        refusal, displaced = self._judge(member, now)
        if refusal is not None:
            return [refusal]
        again = self._again(1)
        ends = [self._end(other, FinishReason.REJECTED, DISPLACED, again) for other in displaced]
        self._arrivals += 1
        self._members[request.id] = member
        self._queue.push(member)
        return ends

    def _judge(self, member: Member, now: float) -> tuple[RequestOutput | None, list[Member]]:
        if (wrong := self._wrong(member.request)) is not None:
            return RequestOutput(member.request.id, finish=FinishReason.FAILED, detail=wrong), []
        if self.draining:
            return self._rejected(member, "draining", 1), []
        places = max(self.config.max_inputs - self.running, 0)
        full, too_long = self._queue.full(places), self._queue.too_long(member.due)
        bound = full or too_long
        gone = self._queue.displaced_by(member, 1, member.due, places) if bound else []
        if bound:
            for _ in gone or (member,):
                self.counters.count_refusal(by_requests=full is not None)
            if not gone:
                return self._rejected(member, bound.why, bound.leave_first), []
        return self._late(member, now), gone

    def _wrong(self, request: PoolingRequest) -> str | None:
        limit, size = self.config.max_model_len, self.config.vocab_size
        for one in request.inputs:
            if not 0 < len(one.tokens) <= limit:
                return f"An input has {len(one.tokens)} tokens; it must have 1 to {limit}."
            if not 0 <= min(one.tokens) <= max(one.tokens) < size:
                return f"An input has a token id outside 0 to {size - 1}."
        return None

    def _rejected(self, member: Member, why: str, places: int) -> RequestOutput:
        again = self._again(places)
        return RequestOutput(member.request.id, finish=FinishReason.REJECTED, detail=why, retry_after=again)

    def _again(self, places: int) -> float:
        """Seconds until so many requests have left the queue: what has begun is computed, and they at their mean length."""
        waiting = len(self._queue)
        begun = self.outstanding_tokens - self._queue.tokens
        leaving = self._queue.tokens * min(places, waiting) / waiting if waiting else 0.0
        return retry_after((begun + leaving) * self._token_seconds)

    def _late(self, member: Member, now: float) -> RequestOutput | None:
        """A refusal if the request is expected to begin after its deadline."""
        if member.request.deadline is None:
            return None
        left, wait = member.request.deadline - now, self._wait(member)
        if wait <= left:
            return None
        self.counters.deadlines_unreachable += 1
        again = retry_after(wait - left) if left > 0 else MAX_RETRY_AFTER
        return too_late(member.request.id, "the first input is expected to begin in", wait, left, again)

    def _wait(self, member: Member) -> float:
        """Seconds until the request begins: others go first until they are done, or until they were served for long enough."""
        return sum(
            min(other.left * self._token_seconds, max(member.key[0] - other.key[0], 0.0))
            for other in self._members.values()
        )

    def expire(self, now: float) -> list[RequestOutput]:
        """End the waiting requests whose deadline has passed. What has begun goes on."""
        late = self._queue.expired(now)
        self.counters.deadlines_passed += len(late)
        again = self._again(1)
        return [self._end(member, FinishReason.EXPIRED, DEADLINE_PASSED, again) for member in late]

    def abort(self, request_id: str) -> list[RequestOutput]:
        return self._end_by_id(request_id, FinishReason.ABORTED)

    def fail(self, request_id: str, detail: str) -> list[RequestOutput]:
        return self._end_by_id(request_id, FinishReason.FAILED, detail)

    def reset(self, detail: str) -> list[RequestOutput]:
        """End all requests: it is not known which one is at fault."""
        self._queue.clear()
        members, self._members = self._members, {}
        return [RequestOutput(name, finish=FinishReason.LOST, detail=detail) for name in members]

    def _end_by_id(self, request_id: str, reason: FinishReason, detail: str = "") -> list[RequestOutput]:
        member = self._members.get(request_id)
        return [] if member is None else [self._end(member, reason, detail)]

    def _end(
        self, member: Member, reason: FinishReason, detail: str = "", again: float = 0.0
    ) -> RequestOutput:
        del self._members[member.request.id]
        self._queue.discard(member)
        return RequestOutput(member.request.id, finish=reason, detail=detail, retry_after=again)

    def has(self, member: Member) -> bool:
        return self._members.get(member.request.id) is member

    def schedule(self, now: float) -> PoolingBatch:
        rows: list[Row] = []
        budget = self.config.max_batched_tokens
        for member in sorted(self._members.values(), key=lambda one: one.key):
            inputs = member.request.inputs
            while member.given < len(inputs) and len(rows) < self.config.max_inputs:
                tokens = len(inputs[member.given].tokens)
                if rows and tokens > budget:
                    break
                rows.append(Row(member, member.given))
                member.given += 1
                budget -= tokens
            if member.given and not member.begun:
                member.begun = True
                self._queue.discard(member)
            if budget <= 0:
                break
        return PoolingBatch(tuple(rows), now)

    def update(self, batch: PoolingBatch, vectors: Sequence[bytes | None], now: float) -> StepResult:
        """Take the result of a step: a vector for each row, in the batch's order; None where the model's output was not a
        number. Raises ValueError, before anything is changed, if their numbers differ."""
        if len(vectors) != len(batch.rows):
            raise ValueError(f"The model gave {len(vectors)} vectors for {len(batch.rows)} inputs.")
        self.counters.steps += 1
        self._observe(batch, max(now - batch.time, 0.0))
        found: list[Vector] = []
        ends: list[RequestOutput] = []
        for row, values in zip(batch.rows, vectors, strict=True):
            if not self.has(row.member):
                continue  # it has ended since
            if values is None:
                ends.append(self._end(row.member, FinishReason.FAILED, "The model's output is not a number."))
                continue
            found.append(Vector(row.member.request.id, row.index, values))
            ends += self._count(row)
        return StepResult(tuple(found), tuple(ends))

    def _observe(self, batch: PoolingBatch, seconds: float) -> None:
        tokens = sum(len(row.input.tokens) for row in batch.rows)
        if not tokens:
            return
        each = seconds / tokens
        known = self._token_seconds
        self._token_seconds = known + _WEIGHT * (each - known) if known else each
        for row in batch.rows:
            row.member.served += each * len(row.input.tokens)

    def _count(self, row: Row) -> list[RequestOutput]:
        member, tokens = row.member, len(row.input.tokens)
        member.left -= tokens
        member.done += 1
        self.counters.prompt_tokens += tokens
        return [self._end(member, FinishReason.STOP)] if member.done == len(member.request.inputs) else []
