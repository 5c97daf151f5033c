"""Continuous batching: which tokens of which sequences the next step computes, and what its result changes.

Pure: time is an argument, and the model runs elsewhere. What a step takes is in `planning`, who is taken in
`admission`, and how a request leaves in `members`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows

from msgspec.structs import replace

from llmendpoint_server.core.adapters import NO_PLACE, Placed, Places
from llmendpoint_server.core.admission import DEADLINE_PASSED, DISPLACED, Admission
from llmendpoint_server.core.batch import NOTHING, Batch, Fault, Sampled, Scheduled, check_fits
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.drafting import Drafting
from llmendpoint_server.core.estimate import Lives
from llmendpoint_server.core.group import make_group
from llmendpoint_server.core.members import Members, output_of
from llmendpoint_server.core.pace import Pace
from llmendpoint_server.core.paging import Paging
from llmendpoint_server.core.planning import Planning
from llmendpoint_server.core.prefix import Weights, root_hash
from llmendpoint_server.core.queue import WaitingQueue
from llmendpoint_server.core.request import FinishReason, Request, RequestOutput
from llmendpoint_server.core.sequence import Sequence, Status, finish_reason
from llmendpoint_server.core.speculation import PromptLookup, Proposer, agreed

NO_ADAPTER = Placed(NO_PLACE, 0)


class Scheduler:
    def __init__(
        self,
        config: SchedulerConfig,
        blocks: BlockManager,
        make_proposer: Callable[[], Proposer] = PromptLookup,
    ) -> None:
        config.check(blocks.pages, blocks.page_size)
        self.config = config
        self.blocks = blocks
        self.counters = counters = Counters()
        self.draining = False
        self.adapters = Places(config.max_adapters)
        self.lives = lives = Lives()
        key = config.prefix_key if config.prefix_caching else None
        self._paging = paging = Paging(blocks, key, config.sliding_window)
        self._drafting = Drafting(
            config.num_speculative_tokens, config.max_model_len, blocks, counters, make_proposer
        )
        queue = WaitingQueue[Sequence](config.max_queued_requests, config.max_queued_tokens)
        self._members = members = Members(blocks, paging, queue, lives)
        self._pace = pace = Pace(config.max_batched_tokens)
        self._admission = Admission(config, queue, lives, pace, paging, counters)
        self._planning = Planning(
            config, members, blocks, paging, pace, self._admission, self._drafting, counters
        )
        self._arrivals = 0

    @property
    def waiting(self) -> int:
        return len(self._members.waiting)

    @property
    def waiting_tokens(self) -> int:
        return self._members.waiting.tokens

    @property
    def running(self) -> int:
        return len(self._members.running)

    @property
    def idle(self) -> bool:
        return not self._members.groups

    @property
    def outstanding_tokens(self) -> int:
        return sum([one.outstanding for group in self._members.groups.values() for one in group.members])

    def free_places(self) -> None:
        """Free the places of adapters that no request needs any more."""
        self.adapters.settle({one.place for group in self._members.groups.values() for one in group.members})

    def adapters_of_requests(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of those that run, and of those that only wait."""
        running = {sequence.request.adapter for sequence in self._members.running}
        every = {group.request.adapter for group in self._members.groups.values()}
        return tuple(sorted(running - {""})), tuple(sorted(every - running - {""}))

    def add(self, request: Request, seed: int, now: float = 0.0) -> list[RequestOutput]:
        """Queue a request, or return why not: one end for each answer. Also returns the ends of the requests that it displaces.
        `seed` is used if the request has none."""
        members = self._members
        if request.id in members.groups:
            raise ValueError(f"There is a request {request.id!r} already.")
        placed = self.adapters.find(request.adapter) if request.adapter else NO_ADAPTER
        if placed is None:  # unloaded since the API process looked
            detail = "Its adapter is not loaded any more."
            return [
                RequestOutput(request.id, (), FinishReason.LOST, detail=detail, index=index)
                for index in range(request.n)
            ]
        chosen = request.sampling.seed
        weights = Weights(self.config.model_revision, request.adapter, placed.generation)
        root = root_hash(self.config.prefix_key, weights, request.salt)
        size = self.blocks.page_size if self.config.prefix_caching else None
        group = make_group(
            request, seed if chosen is None else chosen, root, self._arrivals, size, self.config.eos_token_ids,
            placed.place,
        )  # fmt: skip
        verdict = self._admission.judge(group, members.running, self.draining, now)
        if verdict.refusal is not None:
            return [replace(verdict.refusal, index=index) for index in range(request.n)]
        again = self._admission.retry_after(members.running, len(group.members))
        ends = [
            end for name in verdict.displaced for end in members.end(name, FinishReason.REJECTED, DISPLACED)
        ]
        self._arrivals += request.n
        members.add(group)
        return [replace(end, retry_after=again) for end in ends]

    def expire(self, now: float) -> list[RequestOutput]:
        """End the waiting requests whose deadline has passed. What has begun to run goes on."""
        members = self._members
        late = members.waiting.expired(now)
        if not late:
            return []
        ids = {sequence.id: None for sequence in late}
        self.counters.deadlines_passed += len(ids)
        again, why = self._admission.retry_after(members.running), DEADLINE_PASSED
        ends = [end for name in ids for end in members.end(name, FinishReason.EXPIRED, why)]
        return [replace(end, retry_after=again) for end in ends]

    def abort(self, request_id: str, index: int | None = None) -> list[RequestOutput]:
        """End a request at once, with one end for each of its answers that has none; its pages are free on return. Empty if
        it has ended already, or is in the faults. `index`: the one answer to end; the others go on."""
        return self._members.end(request_id, FinishReason.ABORTED, index=index)

    def fail(self, request_id: str, detail: str) -> list[RequestOutput]:
        """End a request that could not be computed. Returns what `abort` returns."""
        return self._members.end(request_id, FinishReason.FAILED, detail)

    def reset(self, error: Exception) -> None:
        """End all requests, in the faults, and start anew with all pages free: `error` does not show which one is at
        fault."""
        self._members.reset(error)

    def take_faults(self) -> list[Fault]:
        """The ends of requests on whose state something was raised, each returned once."""
        faults, self._members.faults = self._members.faults, []
        return faults

    def schedule(self, now: float) -> Batch:
        """Raises if it is not known which request is at fault; the caller then calls `reset`."""
        rows = self._planning.rows(now)
        if not (rows or self.idle or self._members.faults):
            raise RuntimeError("Requests wait, and none was scheduled.")
        return Batch(tuple([row for row in rows if row.sequence.status is Status.RUNNING]), now)

    def ahead(self, batch: Batch) -> Batch | None:
        """The batch after `batch`, which runs, so that it can begin before the tokens are known that `batch` gives; None if the next
        one must be scheduled when they are. No other batch is scheduled until this one has ended too, or is given up."""
        rows = self._planning.ahead(batch)
        return Batch(tuple(rows), batch.time) if rows else None

    def update(self, batch: Batch, sampled: Rows[Sampled], now: float) -> list[RequestOutput]:
        """Take the result of a step: what each row got, in the batch's order. Raises ValueError, before anything is
        changed, if not just the rows that sample have tokens, or log probabilities do not fit the tokens."""
        check_fits(batch, sampled)
        self.counters.count_step(batch.tokens)
        self.lives.observe(self.running, now - batch.time)
        if not batch.drafted:  # the pace knows no steps with more than one token for a row that decodes
            self._pace.observe(batch.prompt_tokens, batch.decoding, now - batch.time)
        outputs = []
        for row, new in zip(batch.rows, sampled, strict=True):
            sequence = row.sequence
            if sequence.status is not Status.RUNNING:
                continue  # aborted while the step ran
            try:
                output = self._advance(sequence, row, new, now)
            except Exception as error:  # any: as in `guard`, whose call would add to the time of every token
                self._members.expel(sequence, error)
                continue
            if output is not None:
                outputs.append(output)
                if output.finish in (FinishReason.FAILED, FinishReason.GRAMMAR):
                    outputs += self._members.end(output.id, output.finish, output.detail)
        return outputs

    def _advance(
        self, sequence: Sequence, row: Scheduled, sampled: Sampled, now: float
    ) -> RequestOutput | None:
        if row.draft and any(token < 0 for token in sampled.tokens):
            # A guess that is not finite spoils what is computed beside it. The request is judged by a row without one.
            self._drafting.give_up(sequence, len(row.draft))
            self._members.preempt(sequence)
            return None
        self._paging.grow(sequence, row.count - len(row.draft))
        if sequence.decoding:
            return self._append(sequence, row.draft, sampled) if sampled.tokens else None
        if sequence.scores:
            sampled = self._score(sequence, sampled)
        if not sampled.tokens:
            return output_of(sequence, sampled) if sampled.prompt_logprobs else None
        first = not sequence.generated
        if first and not sequence.index:
            self.counters.prompt_tokens += len(sequence.request.prompt)
            self._members.groups[sequence.id].prompt_computed()
        sequence.decoding = True
        output = self._append(sequence, row.draft, sampled)
        return replace(output, began=sequence.began, first_token=now) if first else output

    def _score(self, sequence: Sequence, sampled: Sampled) -> Sampled:
        """Count what was told of the prompt. Its first token follows nothing, and has no probability."""
        told = sampled.prompt_logprobs if sequence.scored else (None, *sampled.prompt_logprobs)
        sequence.scored += len(told)
        return replace(sampled, prompt_logprobs=told)

    def _append(self, sequence: Sequence, draft: tuple[int, ...], sampled: Sampled) -> RequestOutput:
        """What follows the token that ends the request is dropped."""
        if sampled.fault:
            return self._members.finish(sequence, FinishReason.GRAMMAR, NOTHING, sampled.fault)
        reason, accepted = None, agreed(draft, sampled.tokens) if draft else 0
        for number, token in enumerate(sampled.tokens, start=1):
            if token < 0:
                self.blocks.forget(sequence.names[1:])  # one of its pages holds a NaN or an infinity
                detail = "The model's output is not a number."
                return self._members.finish(sequence, FinishReason.FAILED, sampled.first(number - 1), detail)
            sequence.tokens.append(token)
            self.counters.generated_tokens += 1
            reason = finish_reason(sequence, self.config.max_model_len)
            if reason is not None:
                sampled = sampled.first(number)
                break
        if draft:
            accepted = min(accepted, len(sampled.tokens))
            self._paging.grow(sequence, accepted)
            self._drafting.settle(sequence, len(draft), accepted)
        if reason is not None:
            return self._members.finish(sequence, reason, sampled)
        return output_of(sequence, sampled)
