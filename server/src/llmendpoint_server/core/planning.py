"""What a step takes: of the running sequences, then of the waiting ones.

A step takes at most `max_batched_tokens`: first one token of every sequence that decodes, then prompts in the order of
the queue, cut into chunks if they do not fit. While others decode, `pace` bounds these chunks. If pages run out, the
last sequence in that order is preempted: it releases its pages and is computed again later; its generated tokens are
kept. A prompt whose log probabilities are asked for is computed in smaller chunks.
"""

from __future__ import annotations

from llmendpoint_server.core.admission import Admission
from llmendpoint_server.core.batch import Batch, Expected, Scheduled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.config import SchedulerConfig
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.drafting import Drafting
from llmendpoint_server.core.members import Members
from llmendpoint_server.core.pace import Pace
from llmendpoint_server.core.paging import Paging
from llmendpoint_server.core.sequence import Sequence, Status, ends_at

SCORED_AT_ONCE = 128
"""Positions of prompts whose log probabilities one step computes: each has logits as large as the vocabulary."""


class Planning:
    def __init__(
        self,
        config: SchedulerConfig,
        members: Members,
        blocks: BlockManager,
        paging: Paging,
        pace: Pace,
        admission: Admission,
        drafting: Drafting,
        counters: Counters,
    ) -> None:
        self._config = config
        self._members = members
        self._blocks = blocks
        self._paging = paging
        self._pace = pace
        self._admission = admission
        self._drafting = drafting
        self._counters = counters
        self._scorable = 0
        """positions of prompts that the step may still score"""
        self._short: tuple[Sequence, int] | None = None
        """the waiting sequence that found too few pages in the last step that was scheduled, and how many there were"""

    def rows(self, now: float) -> list[Scheduled]:
        """The rows of the next step. Some may be of sequences that have ended since they were scheduled."""
        members, rows = self._members, list[Scheduled]()
        self._scorable = SCORED_AT_ONCE
        budget, beyond_pace = self._config.max_batched_tokens, 0
        # Decodes first: a long prompt may delay a token by one step's budget, never keep it out of the step.
        for decoding in (True, False):
            for sequence in [one for one in members.running if one.decoding is decoding]:
                if sequence.status is not Status.RUNNING:
                    continue  # preempted for one before it
                try:
                    budget -= self._go_on(sequence, budget, rows)
                except Exception as error:  # any: as in `guard`, whose call would add to the time of each row
                    members.expel(sequence, error)
            if decoding and rows:
                allowed = min(budget, self._allowance(len(rows)))
                # Prompts get only what is allowed; drafts may have the rest too. But a step that is to decode alone has none.
                beyond_pace, budget = budget - allowed if allowed else 0, allowed
        budget -= self._begin(budget, rows, now)
        self._draft(rows, budget + beyond_pace)
        return rows

    def ahead(self, batch: Batch) -> list[Scheduled]:
        """The rows of the step after `batch`, which runs. Empty unless all there is to do is that each goes on by one token. A sequence
        that ends meanwhile has a row that nobody reads."""
        running, rows = self._members.running, list[Scheduled]()
        going = [row for row in batch.rows if row.sequence.status is Status.RUNNING]
        if self._may_begin() or len(going) < len(running) or self._drafting.room(going, 1) > 0:
            return []
        needs: list[tuple[Scheduled, int]] = []
        for row in going:
            sequence, length = row.sequence, row.start + 2  # in tokens, when `batch` has ended
            if not sequence.decoding:
                return []
            try:
                if sequence.computed != row.start:
                    raise ValueError("It runs, and its row is not what it has to compute.")
                if not ends_at(sequence, length, self._config.max_model_len):
                    needs.append((row, max(self._needs(sequence, length), 0)))
            except Exception as error:  # any, as above
                self._members.expel(sequence, error)
                return []
        if sum([need for _, need in needs]) > self._blocks.available:
            return []
        for row, need in needs:
            if need:
                row.sequence.table += self._blocks.allocate(need)
            rows.append(Expected(row.sequence, row.start + 1, 1))
        return rows

    def _may_begin(self) -> bool:
        """Whether a waiting sequence might begin in the next step. One that found too few pages finds them when there are more."""
        first = self._members.waiting.first
        if first is None or len(self._members.running) >= self._config.max_num_seqs:
            return False
        return self._short is None or self._short[0] is not first or self._free > self._short[1]

    @property
    def _free(self) -> int:
        """Pages for a waiting sequence: one is left for each running sequence's next tokens."""
        return self._blocks.available - len(self._members.running)

    def _needs(self, sequence: Sequence, tokens: int) -> int:
        """Pages for the first `tokens` tokens, beside those that it has."""
        return -(-tokens // self._blocks.page_size) - len(sequence.table)

    def _begin(self, budget: int, rows: list[Scheduled], now: float) -> int:
        """Start waiting sequences, in their order; returns how many tokens they take."""
        members, left = self._members, budget
        self._admission.short_of_pages, self._short = False, None
        while left and len(members.running) < self._config.max_num_seqs:
            sequence = members.waiting.first
            if sequence is None:
                break
            admitted = members.guard(self._admit, sequence, left, now)
            if admitted:
                left -= members.guard(self._go_on, sequence, left, rows) or 0
            elif admitted is not None:
                self._admission.short_of_pages = True
                # With a window a smaller step needs fewer pages, so that there might be enough in the next one.
                self._short = (sequence, self._free) if self._config.sliding_window is None else None
                break
        return budget - left

    def _allowance(self, decoding: int) -> int:
        running = self._members.running
        places = self._config.max_num_seqs - len(running)
        begun = sum([not sequence.decoding for sequence in running])
        return self._pace.allowance(decoding, begun + min(self._members.waiting.ready, places))

    def _go_on(self, sequence: Sequence, budget: int, rows: list[Scheduled]) -> int:
        """Schedule at most `budget` tokens of a running sequence; returns how many."""
        start = sequence.computed
        count = len(sequence.tokens) - start
        if count < 1:
            raise ValueError("It runs, and has nothing to compute.")
        if count > budget:
            count = budget
        scores = not sequence.decoding and sequence.scores
        if scores:
            count = min(count, max(sequence.cacheable - start, 0) + self._scorable)
        need = self._needs(sequence, start + count)
        if not count or (need > 0 and not self._make_room(sequence, need, rows)):
            return 0
        row = Scheduled(sequence, start, count)
        rows.append(row)
        if scores:
            self._scorable -= len(row.scored)
        return count

    def _draft(self, rows: list[Scheduled], budget: int) -> None:
        """Let the sequences that decode guess ahead, in equal shares of what the step leaves."""
        room = self._drafting.room(rows, budget)
        if room < 1:
            return
        places = [place for place, row in enumerate(rows) if row.sequence.decoding and row.sample]
        for left, place in zip(range(len(places), 0, -1), places, strict=True):
            row = rows[place]
            if room >= left and row.sequence.status is Status.RUNNING:
                extended = self._members.guard(self._drafting.extend, row.sequence, row, room // left)
                rows[place] = extended or row
                room -= rows[place].count - row.count

    def _make_room(self, sequence: Sequence, need: int, rows: list[Scheduled]) -> bool:
        """Get `need` more pages for a running sequence, if need be by preempting those that arrived last. Returns False if that was
        this sequence itself, or if a fault of one ended this sequence too."""
        while need > self._blocks.available:
            victim = self._members.running[-1]
            self._members.guard(self._preempt, victim)
            rows[:] = [row for row in rows if row.sequence is not victim]
            if sequence.status is not Status.RUNNING:
                return False
        sequence.table += self._blocks.allocate(need)
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self._members.preempt(sequence)
        self._counters.preemptions += 1

    def _admit(self, sequence: Sequence, budget: int, now: float) -> bool:
        """Move a waiting sequence to the running ones, if there are pages for it."""
        # One page is left for each running sequence's next tokens. Otherwise this admission would preempt at once.
        if not self._paging.take(sequence, budget, len(self._members.running)):
            return False
        if not sequence.generated:
            sequence.cached_tokens = sequence.computed
        if not sequence.begun:  # a prompt is looked up once, however many answers it gets
            self._counters.prefix_cache_queries += len(sequence.tokens) if self._config.prefix_caching else 0
            self._counters.prefix_cache_hits += sequence.computed
        self._members.begin(sequence, now)
        return True
