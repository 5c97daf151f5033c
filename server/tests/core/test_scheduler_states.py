"""docs/concepts/architecture.md: whatever happens, every answer ends once, no page leaks, and no sequence reads what another wrote."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from llmendpoint_server.core import planning
from llmendpoint_server.core.batch import Batch, Sampled, Scheduled
from llmendpoint_server.core.queue import AGING_SECONDS, order_of
from llmendpoint_server.core.request import FinishReason, Priority, Request, RequestOutput, TokenLogprobs
from llmendpoint_server.core.sequence import Sequence, Status
from server.tests.core.arithmetic_model import Guesser, Machine, expected, make_scheduler, request, scores_of

Answer = tuple[str, int]
"""The request's id, and the answer's index."""


class SchedulerStates(RuleBasedStateMachine):
    """Anything may happen at any time: arrivals of requests with several answers, steps, aborts between steps and during one,
    failures."""

    @initialize(
        scored_at_once=st.sampled_from([1, 3, 128]),
        pages=st.integers(2, 10),
        page_size=st.integers(1, 4),
        max_num_seqs=st.integers(1, 4),
        budget=st.integers(4, 9),
        queue=st.integers(0, 4),
        caching=st.booleans(),
        window=st.none() | st.integers(1, 9),
        at_once=st.integers(1, 3),
        queued_tokens=st.integers(0, 40),
        wrong=st.integers(0, 4),
        speculative=st.integers(0, 7),
    )
    def start(self, window: int | None, at_once: int, wrong: int, scored_at_once: int, **config: int) -> None:
        self.scored_at_once = scored_at_once
        self.scheduler = make_scheduler(window=window, proposer=lambda: Guesser(wrong), **config)  # type: ignore[arg-type]  # caching is a bool
        self.machine = Machine(config["page_size"], window, at_once)
        self.sent: dict[str, Request] = {}
        self.got: dict[Answer, tuple[int, ...]] = {}
        self.told: dict[Answer, tuple[TokenLogprobs | None, ...]] = {}
        """log probabilities of the prompt"""
        self.ended: dict[Answer, FinishReason] = {}
        self.at_fault: set[str] = set()
        """ids of the requests that may fail"""
        self.flight: Batch | None = None
        self.next: tuple[Batch, list[Sampled]] | None = None
        """what began beside the flight, and what it gives"""
        self.now = 0.0

    def take(self, output: RequestOutput) -> None:
        answer = output.id, output.index
        assert answer not in self.ended, "an output after the last one"
        assert output.finish is not FinishReason.FAILED or output.id in self.at_fault
        self.told[answer] += output.prompt_logprobs
        if output.tokens and output.finish is not FinishReason.FAILED:
            self.check_told(answer)
        self.got[answer] += output.tokens
        if output.finish is not None:
            self.ended[answer] = output.finish

    def check_told(self, answer: Answer) -> None:
        """When an answer begins, all is told of its prompt, once: by answer 0, if it was asked for."""
        request = self.sent[answer[0]]
        asked = request.sampling.prompt_logprobs is not None and not answer[1]
        assert self.told[answer] == (scores_of(request.prompt) if asked else ())

    @property
    def live(self) -> set[str]:
        """Ids of the requests that have an answer without an end."""
        return {name for name, _ in self.got.keys() - self.ended.keys()}

    @rule(
        prompt=st.lists(st.integers(0, 2), min_size=1, max_size=12).map(tuple),
        max_tokens=st.integers(1, 9),
        ignore_eos=st.booleans(),
        salt=st.sampled_from(["", "tenant"]),
        priority=st.sampled_from(Priority),
        patience=st.none() | st.floats(0, 60),
        n=st.sampled_from([1, 1, 2, 4]),
        prompt_logprobs=st.sampled_from([None, None, 0]),
    )
    def arrive(self, prompt: tuple[int, ...], patience: float | None, **asked: Any) -> None:
        deadline = None if patience is None else self.now + patience
        new = request(f"r{len(self.sent)}", prompt, arrival=self.now, deadline=deadline, **asked)
        self.sent[new.id] = new
        if len(prompt) >= self.scheduler.config.max_model_len:
            self.at_fault.add(new.id)
        self.got |= {(new.id, index): () for index in range(new.n)}
        self.told |= {(new.id, index): () for index in range(new.n)}
        for end in self.scheduler.add(new, 0, self.now):
            assert end.retry_after >= 1 or end.finish is FinishReason.FAILED
            if end.id != new.id:
                self.check_displaced(self.sent[end.id], new)
            self.take(end)
        if new.id in self.live and self.scheduler.waiting > new.n:  # one may wait alone, whatever its size
            self.check_bounds()

    def check_displaced(self, gone: Request, new: Request) -> None:
        assert gone.priority is Priority.LOW
        assert new.priority is not Priority.LOW
        assert order_of(gone, 0) > order_of(new, 0), "it would have started first"
        assert not any(self.got[gone.id, index] for index in range(gone.n)), "it had begun"

    def check_bounds(self) -> None:
        config = self.scheduler.config
        places = config.max_num_seqs - self.scheduler.running
        assert self.scheduler.waiting <= config.max_queued_requests + places
        assert self.scheduler.waiting_tokens <= config.max_queued_tokens

    @precondition(lambda self: self.flight is None)
    @rule(poison=st.sampled_from([None, None, "drafts", "last row"]))
    def begin_step(self, poison: str | None = None) -> None:
        """`poison`: of which rows the model's output is not a number. Of those with a draft it may be the draft's fault."""
        for output in self.scheduler.expire(self.now):
            deadline = self.sent[output.id].deadline
            assert deadline is not None
            assert deadline <= self.now
            assert output.finish is FinishReason.EXPIRED
            assert not any(self.got[output.id, index] for index in range(self.sent[output.id].n))
            self.take(output)
        idle = self.scheduler.idle
        waited, ran = list(self.scheduler._members.waiting), set(self.scheduler._members.running)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(planning, "SCORED_AT_ONCE", self.scored_at_once)
            self.flight = self.scheduler.schedule(self.now)
        assert sum(len(row.scored) for row in self.flight.rows) <= self.scored_at_once
        self.check_order(waited, set(self.scheduler._members.running) - ran)
        assert bool(self.flight.rows) is not idle, "there is work, and nothing was scheduled"
        assert not self.flight.decoding or self.flight.prompt_tokens <= self.scheduler._pace._allowed
        assert self.flight.tokens <= self.scheduler.config.max_batched_tokens
        assert len(self.flight.rows) <= self.scheduler.config.max_num_seqs
        for row in self.flight.rows:
            self.check_row(row)
        if self.machine.at_once == 1:
            decoding = {sequence for sequence in self.scheduler._members.running if sequence.decoding}
            assert decoding <= {row.sequence for row in self.flight.rows}, "a sequence waits for drafts"
        self.at_fault |= {
            row.sequence.id for row in self.flight.rows if self.spoiled(row, poison) and not row.draft
        }
        self.sampled = [
            replace(new, tokens=(-1,)) if new.tokens and self.spoiled(row, poison) else new
            for row, new in zip(self.flight.rows, self.machine.run(self.flight), strict=True)
        ]

    def spoiled(self, row: Scheduled, poison: str | None) -> bool:
        assert self.flight is not None
        return bool(row.draft) if poison == "drafts" else poison is not None and row is self.flight.rows[-1]

    def check_row(self, row: Scheduled) -> None:
        size, blocks = self.machine.page_size, self.scheduler.blocks
        written = row.sequence.table[row.start // size : -(-(row.start + row.count) // size)]
        assert all(blocks.references(page) == 1 for page in written), "a page is written that others read"

    def begin_the_step_after(self) -> None:
        assert self.flight is not None
        begun = [row.sequence for row in self.flight.rows if row.sequence.status is Status.RUNNING]
        batch = self.scheduler.ahead(self.flight)
        if batch is None:
            return
        assert {row.sequence for row in batch.rows} <= set(begun)
        assert set(begun) == set(self.scheduler._members.running), "one that runs would wait for two steps"
        for row in batch.rows:
            self.check_row(row)
        new = zip(self.flight.rows, self.sampled, strict=True)
        coming = {row.sequence: (max(one.tokens[0], 0),) for row, one in new if one.tokens}
        self.next = batch, self.machine.run(batch, coming)

    @precondition(lambda self: self.flight is not None)
    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0, 20.0]))
    def end_step(self, seconds: float) -> None:
        assert self.flight is not None
        self.now += seconds
        for output in self.scheduler.update(self.flight, self.sampled, self.now):
            self.take(output)
        self.flight = None
        if self.next is not None and any(row.sequence.status is Status.RUNNING for row in self.next[0].rows):
            (self.flight, self.sampled) = self.next
        self.next = None

    def check_order(self, waited: list[Sequence], begun: set[Sequence]) -> None:
        """What began to run came before all that waits on."""
        for other in waited:
            if other.status is Status.WAITING and other.ready:
                assert all(one.order < other.order for one in begun)
                assert all(one.request.arrival <= other.request.arrival + 2 * AGING_SECONDS for one in begun)

    @precondition(lambda self: hasattr(self, "scheduler") and self.live)
    @rule(pick=st.randoms(use_true_random=False), failed=st.booleans())
    def stop_one(self, pick: object, failed: bool) -> None:
        name = pick.choice(sorted(self.live))  # type: ignore[attr-defined]
        if failed:
            self.at_fault.add(name)
        for output in self.scheduler.fail(name, "poison") if failed else self.scheduler.abort(name):
            self.take(output)
        assert name not in self.live
        assert not self.scheduler.abort(name), "a second end"

    @invariant()
    def pages_are_held_as_often_as_tables_name_them(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        blocks, members = self.scheduler.blocks, self.scheduler._members
        live = [one for group in members.groups.values() for one in group.members]
        held = [page for sequence in live for page in sequence.held]
        assert all(blocks.references(page) == held.count(page) for page in range(blocks.pages))
        assert blocks.held == len(set(held)), "a page leaked"
        assert {(one.id, one.index) for one in live} == self.got.keys() - self.ended.keys()
        kept = {*members.running, *members.waiting}
        assert kept == set(live), "something is kept of a request that has ended"
        assert len(live) == len(members.running) + len(members.waiting)
        assert all(one.ready for one in members.running), "an answer runs before its prompt is computed"

    @invariant()
    def between_two_steps_no_page_is_held_for_what_was_only_guessed(self) -> None:
        if not hasattr(self, "scheduler") or self.flight is not None:
            return
        for sequence in self.scheduler._members.running:
            used = -(-sequence.computed // self.machine.page_size)
            assert len(sequence.table) == used or not sequence.decoding

    @invariant()
    def no_page_is_held_that_no_query_sees_any_more(self) -> None:
        if not hasattr(self, "scheduler") or self.machine.window is None:
            return
        for sequence in self.scheduler._members.running:
            seen = max(sequence.computed - self.machine.window + 1, 0) // self.machine.page_size
            assert sequence.released == seen

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        for _ in range(500):
            if self.scheduler.idle:
                break
            if self.flight is None:
                self.begin_step()
            self.end_step(1.0)
        assert self.scheduler.idle, "a sequence does not advance"
        assert self.scheduler.blocks.held == 0
        assert self.ended.keys() == self.got.keys()
        assert not self.scheduler.take_faults()
        for answer, reason in self.ended.items():
            sent, got = self.sent[answer[0]], self.got[answer]
            want = expected(sent.prompt, sent.sampling, self.scheduler.config.max_model_len)
            if reason in (FinishReason.STOP, FinishReason.LENGTH):
                assert got == want, "tokens were lost or changed"
            else:
                assert got == want[: len(got)]


TestSchedulerStates = SchedulerStates.TestCase
TestSchedulerStates.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)


class StatesAhead(SchedulerStates):
    """The same, but each step begins before the one before it has ended, where it can, and may be given up."""

    @initialize(
        pages=st.integers(2, 10),
        page_size=st.integers(1, 4),
        max_num_seqs=st.integers(1, 4),
        budget=st.integers(4, 9),
        caching=st.booleans(),
        window=st.none() | st.integers(1, 9),
    )
    def start(self, window: int | None, **config: int) -> None:  # type: ignore[override]  # hypothesis calls it
        super().start(window, 1, 0, 128, queue=4, queued_tokens=40, speculative=0, **config)

    @precondition(lambda self: self.flight is not None)
    @rule(seconds=st.sampled_from([0.0, 0.01, 1.0]), given_up=st.sampled_from([False, False, False, True]))
    def end_step(self, seconds: float, given_up: bool = False) -> None:
        self.begin_the_step_after()
        if given_up:
            self.next = None
        super().end_step(seconds)

    @invariant()
    def between_two_steps_no_page_is_held_for_what_was_only_guessed(self) -> None:
        """A step that was given up leaves the page of the next token."""
        if hasattr(self, "scheduler") and self.flight is None:
            for sequence in self.scheduler._members.running:
                used = -(-len(sequence.tokens) // self.machine.page_size)
                assert len(sequence.table) <= used or not sequence.decoding


TestStatesAhead = StatesAhead.TestCase
TestStatesAhead.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
