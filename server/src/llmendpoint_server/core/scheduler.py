"""Continuous batching: which tokens of which sequences the next step computes.

Each step takes at most `max_batched_tokens`: first one token of every sequence that decodes, then prompts in the order
of the queue, cut into chunks if they do not fit. While others decode, `pace` bounds these chunks. If pages run out, the
last sequence in that order is preempted: it releases its pages and is computed again later; its generated tokens are
kept. Pure: time is an argument, and the model runs elsewhere.

Each sequence is changed within `_guard`: if anything is raised there, that request ends and the others go on.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from collections.abc import Sequence as Rows
from dataclasses import dataclass
from typing import Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from llmendpoint_server.core.admission import DEADLINE_PASSED, Admission
from llmendpoint_server.core.batch import NOTHING, Batch, Fault, Sampled, Scheduled, check_fits
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.drafting import Drafting
from llmendpoint_server.core.estimate import Lives
from llmendpoint_server.core.pace import Pace
from llmendpoint_server.core.paging import Paging
from llmendpoint_server.core.prefix import Weights, root_hash
from llmendpoint_server.core.queue import ORDER, WaitingQueue, order_of
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.core.sequence import Sequence, Status, finish_reason
from llmendpoint_server.core.speculation import PromptLookup, Proposer, agreed


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    max_model_len: int
    max_num_seqs: int
    max_queued_requests: int
    max_batched_tokens: int
    vocab_size: int
    eos_token_ids: frozenset[int] = frozenset()
    prefix_caching: bool = True
    prefix_key: bytes = b""
    model_revision: str = ""
    sliding_window: int | None = None
    """the most keys that a query sees in any layer, its own included; None if a layer has no window"""
    max_queued_tokens: int = 2**20
    num_speculative_tokens: int = 0
    """the most tokens that one draft has; 0: no speculation"""


P = ParamSpec("P")
T = TypeVar("T")


class Scheduler:
    def __init__(
        self,
        config: SchedulerConfig,
        blocks: BlockManager,
        make_proposer: Callable[[], Proposer] = PromptLookup,
    ) -> None:
        if config.max_model_len > blocks.pages * blocks.page_size:
            raise ValueError(
                f"max_model_len {config.max_model_len} does not fit in {blocks.pages} pages of {blocks.page_size}."
            )
        if config.max_batched_tokens < config.max_num_seqs:
            raise ValueError(
                f"max_batched_tokens {config.max_batched_tokens} is less than max_num_seqs {config.max_num_seqs}."
            )
        self.config = config
        self.blocks = blocks
        self._paging = Paging(
            blocks, config.prefix_key if config.prefix_caching else None, config.sliding_window
        )
        self.counters = Counters()
        self._drafting = Drafting(
            config.num_speculative_tokens, config.max_model_len, blocks, self.counters, make_proposer
        )
        self.draining = False
        self.lives = Lives()
        self.faults: list[Fault] = []
        """the engine takes these and answers them"""
        self._waiting: WaitingQueue[Sequence] = WaitingQueue(
            config.max_queued_requests, config.max_queued_tokens
        )
        self._pace = Pace(config.max_batched_tokens)
        self._admission = Admission(
            config, self._waiting, self.lives, self._pace, self._paging, self.counters
        )
        self._running: list[Sequence] = []
        """in the order of the queue: the last one is preempted first"""
        self._by_id: dict[str, Sequence] = {}
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting_tokens(self) -> int:
        return self._waiting.tokens

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def idle(self) -> bool:
        return not self._by_id

    @property
    def outstanding_tokens(self) -> int:
        return sum(sequence.outstanding for sequence in self._by_id.values())

    def add(self, request: Request, seed: int, now: float = 0.0) -> RequestOutput | None:
        """Queue a request, or return why not. `seed` is used if the request has none."""
        if request.id in self._by_id:
            raise ValueError(f"There is a request {request.id!r} already.")
        chosen = request.sampling.seed
        sequence = Sequence(
            request=request,
            seed=seed if chosen is None else chosen,
            tokens=list(request.prompt),
            names=[root_hash(self.config.prefix_key, Weights(self.config.model_revision), request.salt)],
            order=order_of(request, self._arrivals),
        )
        refusal = self._admission.refusal(sequence, self._running, self.draining, now)
        if refusal is None:
            self._arrivals += 1
            self._by_id[request.id] = sequence
            self._waiting.push(sequence)
        return refusal

    def expire(self, now: float) -> list[RequestOutput]:
        """End the waiting requests whose deadline has passed. What has begun to run goes on."""
        late = self._waiting.expired(now)
        if not late:
            return []
        self.counters.deadlines_passed += len(late)
        again, why = self._admission.retry_after(self._running), DEADLINE_PASSED
        ends = [self._guard(self._finish, sequence, FinishReason.EXPIRED, NOTHING, why) for sequence in late]
        return [replace(end, retry_after=again) for end in ends if end is not None]

    def abort(self, request_id: str) -> RequestOutput | None:
        """End a request at once; its pages are free on return. None if it has ended already, or is in `faults`."""
        sequence = self._by_id.get(request_id)
        return None if sequence is None else self._guard(self._finish, sequence, FinishReason.ABORTED)

    def fail(self, request_id: str, detail: str) -> RequestOutput | None:
        """End a request that could not be computed. Returns what `abort` returns."""
        sequence = self._by_id.get(request_id)
        return (
            None
            if sequence is None
            else self._guard(self._finish, sequence, FinishReason.FAILED, NOTHING, detail)
        )

    def _guard(
        self,
        change: Callable[Concatenate[Sequence, P], T],
        sequence: Sequence,
        *args: P.args,
        **options: P.kwargs,
    ) -> T | None:
        """Change one sequence. If anything is raised, that request ends, in `faults`, and the result is None."""
        try:
            return change(sequence, *args, **options)
        except Exception as error:  # any: this request's state is bad; it ends, and the others stay
            self._expel(sequence, error)
            return None

    def _expel(self, sequence: Sequence, error: Exception) -> None:
        """End a request whose state is bad. The held pages are taken from the tables of the other sequences, and all
        names of pages are dropped. If those tables are bad too, all requests end."""
        self._running = [other for other in self._running if other is not sequence]
        self._waiting.discard(sequence)
        self._end_by_fault(sequence, FinishReason.FAILED, error)
        try:
            self.blocks.restart(page for other in self._running for page in other.held)
        except Exception as second:  # any: the others' tables are bad too, so all requests end
            self.reset(second)

    def reset(self, error: Exception) -> None:
        """End all requests, in `faults`, and start anew with all pages free: `error` does not show which one is at
        fault."""
        self._running = []
        self._waiting.clear()
        self.blocks.restart(())
        for sequence in list(self._by_id.values()):
            self._end_by_fault(sequence, FinishReason.LOST, error)

    def _end_by_fault(self, sequence: Sequence, reason: FinishReason, error: Exception) -> None:
        if sequence.status is Status.RUNNING:
            self.lives.end()
        sequence.status = Status.FINISHED
        if self._by_id.pop(sequence.id, None) is not None:
            what = "failed on this request" if reason is FinishReason.FAILED else "lost this request"
            detail = f"The engine {what}: {type(error).__name__}."
            self.faults.append(Fault(RequestOutput(sequence.id, finish=reason, detail=detail), error))

    def schedule(self, now: float) -> Batch:
        """Raises if it is not known which request is at fault; the caller then calls `reset`."""
        rows: list[Scheduled] = []
        budget, beyond_pace = self.config.max_batched_tokens, 0
        # Decodes first: a long prompt may delay a token by one step's budget, never keep it out of the step.
        for decoding in (True, False):
            for sequence in list(self._running):
                if sequence.decoding is not decoding or sequence.status is not Status.RUNNING:
                    continue
                budget -= self._guard(self._go_on, sequence, budget, rows) or 0
            if decoding and rows:
                allowed = min(budget, self._allowance(len(rows)))
                # Prompts get only what is allowed; drafts may have the rest too. But a step that is to decode alone has none.
                beyond_pace, budget = budget - allowed if allowed else 0, allowed
        self._admission.short_of_pages = False
        while budget and self._waiting and len(self._running) < self.config.max_num_seqs:
            sequence = self._waiting.first
            admitted = self._guard(self._admit, sequence, budget)
            if admitted:
                budget -= self._guard(self._go_on, sequence, budget, rows) or 0
            elif admitted is not None:
                self._admission.short_of_pages = True
                break
        self._draft(rows, budget + beyond_pace)
        if not (rows or self.idle or self.faults):
            raise RuntimeError("Requests wait, and none was scheduled.")
        return Batch(tuple(row for row in rows if row.sequence.status is Status.RUNNING), now)

    def _allowance(self, decoding: int) -> int:
        places = self.config.max_num_seqs - len(self._running)
        begun = sum(not sequence.decoding for sequence in self._running)
        return self._pace.allowance(decoding, begun + min(len(self._waiting), places))

    def _go_on(self, sequence: Sequence, budget: int, rows: list[Scheduled]) -> int:
        """Schedule at most `budget` tokens of a running sequence; returns how many."""
        if sequence.remaining < 1:
            raise ValueError("It runs, and has nothing to compute.")
        count = min(sequence.remaining, budget)
        if not count or not self._make_room(sequence, sequence.computed + count, rows):
            return 0
        rows.append(Scheduled(sequence, sequence.computed, count))
        return count

    def _draft(self, rows: list[Scheduled], budget: int) -> None:
        """Let the sequences that decode guess ahead, in equal shares of what the step leaves."""
        room = self._drafting.room(rows, budget)
        places = [place for place, row in enumerate(rows) if row.sequence.decoding and row.sample]
        for left, place in zip(range(len(places), 0, -1), places, strict=True):
            row = rows[place]
            if room >= left and row.sequence.status is Status.RUNNING:
                rows[place] = self._guard(self._drafting.extend, row.sequence, row, room // left) or row
                room -= rows[place].count - row.count

    def _make_room(self, sequence: Sequence, tokens: int, rows: list[Scheduled]) -> bool:
        """Get pages for the first `tokens` tokens of a running sequence, if need be by preempting those that arrived
        last. Returns False if that was this sequence itself."""
        need = -(-tokens // self.blocks.page_size) - len(sequence.table)
        while need > self.blocks.available:
            victim = self._running[-1]
            self._guard(self._preempt, victim)
            rows[:] = [row for row in rows if row.sequence is not victim]
            if victim is sequence:
                return False
        if need > 0:
            sequence.table += self.blocks.allocate(need)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._paging.give_back(sequence)
        sequence.status, sequence.decoding = Status.WAITING, False
        self._waiting.push(sequence)
        self.counters.preemptions += 1

    def _admit(self, sequence: Sequence, budget: int) -> bool:
        """Move the first waiting sequence to the running ones, if there are pages for it."""
        # One page is left for each running sequence's next tokens. Otherwise this admission would preempt at once.
        if not self._paging.take(sequence, budget, len(self._running)):
            return False
        if not sequence.generated:
            sequence.cached_tokens = sequence.computed
            self.counters.prefix_cache_queries += len(sequence.tokens) if self.config.prefix_caching else 0
            self.counters.prefix_cache_hits += sequence.computed
        self._waiting.remove(sequence)
        sequence.status = Status.RUNNING
        insort(self._running, sequence, key=ORDER)
        return True

    def update(self, batch: Batch, sampled: Rows[Sampled], now: float) -> list[RequestOutput]:
        """Take the result of a step: what each row got, in the batch's order. Raises ValueError, before anything is
        changed, if not just the rows that sample have tokens, or log probabilities do not fit the tokens."""
        check_fits(batch, sampled)
        self.counters.steps += 1
        self.lives.observe(len(self._running), now - batch.time)
        self._pace.observe(batch.prompt_tokens, batch.decoding, now - batch.time)
        outputs = []
        for row, new in zip(batch.rows, sampled, strict=True):
            if row.sequence.status is not Status.RUNNING:
                continue  # aborted while the step ran
            output = self._guard(self._advance, row.sequence, row, new)
            if output is not None:
                outputs.append(output)
        return outputs

    def _advance(self, sequence: Sequence, row: Scheduled, sampled: Sampled) -> RequestOutput | None:
        self._compute(sequence, row.count - len(row.draft))
        if not sampled.tokens:
            return None
        if not sequence.generated:
            self.counters.prompt_tokens += len(sequence.request.prompt)
        sequence.decoding = True
        return self._append(sequence, row.draft, sampled)

    def _compute(self, sequence: Sequence, count: int) -> None:
        """The next `count` tokens of the sequence have keys and values."""
        sequence.computed += count
        self._paging.name(sequence)
        self._paging.release_unseen(sequence)

    def _append(self, sequence: Sequence, draft: tuple[int, ...], sampled: Sampled) -> RequestOutput:
        """What follows the token that ends the request is dropped."""
        reason, accepted = None, agreed(draft, sampled.tokens)
        for number, token in enumerate(sampled.tokens, start=1):
            if token < 0:
                self.blocks.forget(sequence.names[1:])  # one of its pages holds a NaN or an infinity
                detail = "The model's output is not a number."
                return self._finish(sequence, FinishReason.FAILED, sampled.first(number - 1), detail)
            sequence.tokens.append(token)
            self.counters.generated_tokens += 1
            reason = finish_reason(sequence, self.config.eos_token_ids, self.config.max_model_len)
            if reason is not None:
                sampled = sampled.first(number)
                break
        if draft:
            accepted = min(accepted, len(sampled.tokens))
            self._compute(sequence, accepted)
            self._drafting.settle(sequence, len(draft), accepted)
        if reason is not None:
            return self._finish(sequence, reason, sampled)
        return RequestOutput(
            sequence.id, sampled.tokens, cached_tokens=sequence.cached_tokens, logprobs=sampled.logprobs
        )

    def _finish(
        self, sequence: Sequence, reason: FinishReason, sampled: Sampled = NOTHING, detail: str = ""
    ) -> RequestOutput:
        if sequence.status is Status.RUNNING:
            self._running.remove(sequence)
            self._paging.give_back(sequence)
            self.lives.end()
        else:
            self._waiting.remove(sequence)
        sequence.status = Status.FINISHED
        del self._by_id[sequence.id]
        return RequestOutput(
            sequence.id, sampled.tokens, reason, sequence.cached_tokens, detail, logprobs=sampled.logprobs
        )
