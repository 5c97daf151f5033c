"""Continuous batching: which tokens of which sequences the next step computes.

Each step takes at most `max_batched_tokens`: first one token of every sequence that decodes, then prompts in order of
arrival, cut into chunks where they do not fit. When pages run out, the sequence that arrived last gives its own back
and is computed again later; what it has generated is kept. Pure: time is an argument, the model is somebody else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Rows
from dataclasses import dataclass

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.estimate import Lives, retry_after
from llmendpoint_server.core.prefix import root_hash
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.core.sequence import GONE, Sequence, Status, finish_reason


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
    """the most keys that a query sees in any layer, its own included; None when a layer has no window"""


@dataclass(slots=True)
class Counters:
    """They only grow."""

    steps: int = 0
    prompt_tokens: int = 0
    """each prompt counts once, at its first output token, whether its tokens were computed or found in the cache"""
    generated_tokens: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    preemptions: int = 0


class Scheduler:
    def __init__(self, config: SchedulerConfig, blocks: BlockManager) -> None:
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
        self.counters = Counters()
        self.draining = False
        self.lives = Lives()
        self._waiting: deque[Sequence] = deque()
        self._running: list[Sequence] = []
        self._by_id: dict[str, Sequence] = {}

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._running)

    @property
    def idle(self) -> bool:
        return not self._by_id

    @property
    def outstanding_tokens(self) -> int:
        return sum(sequence.outstanding for sequence in self._by_id.values())

    def add(self, request: Request, seed: int) -> RequestOutput | None:
        """Queues a request, or says why not. `seed` is used where the request brings none."""
        if request.id in self._by_id:
            raise ValueError(f"There is a request {request.id!r} already.")
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        chosen = request.sampling.seed
        sequence = Sequence(
            request=request,
            seed=seed if chosen is None else chosen,
            tokens=list(request.prompt),
            names=[root_hash(self.config.prefix_key, self.config.model_revision, request.salt)],
        )
        self._by_id[request.id] = sequence
        self._waiting.append(sequence)
        return None

    def _refusal(self, request: Request) -> RequestOutput | None:
        length, limit = len(request.prompt), self.config.max_model_len
        if not 0 < length < limit:
            detail = f"The prompt has {length} tokens; it must have 1 to {limit - 1}."
            return RequestOutput(request.id, finish=FinishReason.FAILED, detail=detail)
        if not (min(request.prompt) >= 0 and max(request.prompt) < self.config.vocab_size):
            detail = f"The prompt has a token id outside 0 to {self.config.vocab_size - 1}."
            return RequestOutput(request.id, finish=FinishReason.FAILED, detail=detail)
        # Free places in the next batch count as room: with an empty engine a queue of 0 still serves.
        room = self.config.max_queued_requests + max(self.config.max_num_seqs - len(self._running), 0)
        if self.draining or len(self._waiting) >= room:
            detail = "draining" if self.draining else f"{len(self._waiting)} requests are waiting already"
            wait = self._retry_after()
            return RequestOutput(request.id, finish=FinishReason.REJECTED, detail=detail, retry_after=wait)
        return None

    def _retry_after(self) -> float:
        budget = self.config.max_batched_tokens
        fewest = min((sequence.steps_left(budget) for sequence in self._running), default=0)
        return retry_after(self.lives.mean_life, len(self._running), fewest, self.lives.step_seconds)

    def abort(self, request_id: str) -> RequestOutput | None:
        """Ends a request at once, its pages are free on return. None when it has ended already."""
        sequence = self._by_id.get(request_id)
        return None if sequence is None else self._finish(sequence, FinishReason.ABORTED)

    def fail(self, request_id: str, detail: str) -> RequestOutput | None:
        """Ends a request that could not be computed."""
        sequence = self._by_id.get(request_id)
        return None if sequence is None else self._finish(sequence, FinishReason.FAILED, detail=detail)

    def schedule(self, now: float) -> Batch:
        rows: list[Scheduled] = []
        budget = self.config.max_batched_tokens
        # Decodes first: a long prompt may delay a token by one step's budget, never keep it out of the step.
        for decoding in (True, False):
            for sequence in list(self._running):
                if (sequence.remaining == 1) is not decoding or sequence.status is not Status.RUNNING:
                    continue
                count = min(sequence.remaining, budget)
                if count and self._make_room(sequence, sequence.computed + count, rows):
                    rows.append(Scheduled(sequence, sequence.computed, count))
                    budget -= count
        while budget and self._waiting and len(self._running) < self.config.max_num_seqs:
            sequence = self._waiting[0]
            if not self._admit(sequence, budget):
                break
            count = min(sequence.remaining, budget)
            rows.append(Scheduled(sequence, sequence.computed, count))
            budget -= count
        return Batch(tuple(rows), now)

    def _make_room(self, sequence: Sequence, tokens: int, rows: list[Scheduled]) -> bool:
        """Pages for the first `tokens` tokens of a running sequence, if need be from those that arrived later."""
        need = -(-tokens // self.blocks.page_size) - len(sequence.table)
        while need > self.blocks.available:
            victim = self._running[-1]
            self._preempt(victim)
            rows[:] = [row for row in rows if row.sequence is not victim]
            if victim is sequence:
                return False
        if need > 0:
            sequence.table += self.blocks.allocate(need)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._running.remove(sequence)
        self._return_pages(sequence)
        sequence.status = Status.WAITING
        self._waiting.appendleft(sequence)
        self.counters.preemptions += 1

    def _admit(self, sequence: Sequence, budget: int) -> bool:
        """Moves the first waiting sequence to the running ones, and allocates pages for all of its tokens. With a sliding
        window it allocates pages for the next step only: later steps reuse the pages that the window has passed."""
        size = self.blocks.page_size
        # The last token is always computed: the next one is sampled from its logits.
        reusable = (len(sequence.tokens) - 1) // size if self.config.prefix_caching else 0
        found = self.blocks.find(sequence.page_names(self.config.prefix_key, size, reusable))
        tokens = len(sequence.tokens)
        if self.config.sliding_window is not None:
            tokens = min(tokens, len(found) * size + budget)
        need = -(-tokens // size) - len(found)
        # One page is left for each running sequence's next tokens, or this admission would preempt at once.
        if need + self.blocks.idle(found) + len(self._running) > self.blocks.available:
            return False
        self.blocks.hold(found)
        sequence.table = found + self.blocks.allocate(need)
        sequence.computed = len(found) * size
        sequence.named = len(found)
        self._release_unseen(sequence)
        if not sequence.generated:
            sequence.cached_tokens = sequence.computed
            self.counters.prefix_cache_queries += len(sequence.tokens) if self.config.prefix_caching else 0
            self.counters.prefix_cache_hits += sequence.computed
        self._waiting.popleft()
        sequence.status = Status.RUNNING
        self._running.append(sequence)
        return True

    def update(self, batch: Batch, sampled: Rows[int], now: float) -> list[RequestOutput]:
        """Takes the result of a step: one token for each row that samples, in the batch's order.

        A negative token says that the model's output for that row was not a number: the request fails alone.
        """
        self.counters.steps += 1
        self.lives.observe(len(self._running), now - batch.time)
        outputs = []
        tokens = iter(sampled)
        for row in batch.rows:
            token = next(tokens) if row.sample else None
            sequence = row.sequence
            if sequence.status is not Status.RUNNING:
                continue  # aborted while the step ran
            sequence.computed += row.count
            self._name_pages(sequence)
            self._release_unseen(sequence)
            if token is not None:
                if not sequence.generated:
                    self.counters.prompt_tokens += len(sequence.request.prompt)
                outputs.append(self._append(sequence, token))
        return outputs

    def _append(self, sequence: Sequence, token: int) -> RequestOutput:
        if token < 0:
            self.blocks.forget(sequence.names[1:])  # one of its pages holds a NaN or an infinity
            return self._finish(sequence, FinishReason.FAILED, detail="The model's output is not a number.")
        sequence.tokens.append(token)
        self.counters.generated_tokens += 1
        reason = finish_reason(sequence, self.config.eos_token_ids, self.config.max_model_len)
        if reason is not None:
            return self._finish(sequence, reason, tokens=(token,))
        return RequestOutput(sequence.id, (token,), cached_tokens=sequence.cached_tokens)

    def _name_pages(self, sequence: Sequence) -> None:
        full = sequence.computed // self.blocks.page_size
        if not self.config.prefix_caching or full == sequence.named:
            return
        names = sequence.page_names(self.config.prefix_key, self.blocks.page_size, full)
        for page in range(sequence.named, full):
            self.blocks.name(sequence.table[page], names[page])
        sequence.named = full

    def _release_unseen(self, sequence: Sequence) -> None:
        """Releases the pages that the sliding window has passed. Full pages keep their names."""
        window = self.config.sliding_window
        if window is None:
            return
        seen = max(sequence.computed - window + 1, 0) // self.blocks.page_size
        unseen = sequence.table[sequence.released : seen]
        if unseen:
            self.blocks.release(unseen)
            sequence.table[sequence.released : seen] = [GONE] * len(unseen)
            sequence.released = seen

    def _finish(
        self, sequence: Sequence, reason: FinishReason, tokens: tuple[int, ...] = (), detail: str = ""
    ) -> RequestOutput:
        if sequence.status is Status.RUNNING:
            self._running.remove(sequence)
            self._return_pages(sequence)
            self.lives.end()
        else:
            self._waiting.remove(sequence)
        sequence.status = Status.FINISHED
        del self._by_id[sequence.id]
        return RequestOutput(sequence.id, tokens, reason, sequence.cached_tokens, detail)

    def _return_pages(self, sequence: Sequence) -> None:
        self.blocks.release(sequence.held)
        sequence.table = []
        sequence.computed = sequence.named = sequence.released = 0
