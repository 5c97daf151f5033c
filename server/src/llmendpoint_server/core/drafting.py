"""Which rows of a step get drafts, how long these are, and the pages for them.

Drafts take what the step leaves: they wait for all other rows, and never preempt. When the step's result is known, the pages that only
rejected tokens lie in are given back.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Rows

from msgspec.structs import replace

from llmendpoint_server.core.batch import Scheduled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.counters import Counters
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Proposer

SMALL_STEP_TOKENS = 8
"""A step has drafts only while it has at most so many tokens, those of the drafts included. The time of such a step is mostly that of
reading the weights, so drafts cost its other sequences little. A step with more sequences, or with a long piece of a prompt, has none."""

MOST_DRAFT_TOKENS = SMALL_STEP_TOKENS - 1
"""Beside the token that every row has."""
DEFAULT_DRAFT_TOKENS = 7


class Drafting:
    """`most`: tokens of one draft; 0 is no speculation."""

    def __init__(
        self,
        most: int,
        max_model_len: int,
        blocks: BlockManager,
        counters: Counters,
        make_proposer: Callable[[], Proposer],
    ) -> None:
        self._most = most
        self._max_model_len = max_model_len
        self._blocks = blocks
        self._counters = counters
        self._make_proposer = make_proposer

    def room(self, rows: Rows[Scheduled], budget: int) -> int:
        """Tokens that the drafts of a step may have together, if `budget` of its tokens are left."""
        return min(budget, SMALL_STEP_TOKENS - sum(row.count for row in rows)) if self._most else 0

    def extend(self, sequence: Sequence, row: Scheduled, room: int) -> Scheduled:
        """The row with a draft of at most `room` tokens, and pages for it."""
        size, end = self._blocks.page_size, row.start + row.count
        most = min(
            room,
            self._most,
            sequence.draft_length,
            # A step gives one token more than the draft: that may be the request's last one.
            sequence.request.sampling.max_tokens - sequence.generated - 1,
            self._max_model_len - len(sequence.tokens) - 1,
            (len(sequence.table) + self._blocks.available) * size - end,
        )
        if most < 1:
            return row
        if sequence.proposer is None:
            sequence.proposer = self._make_proposer()
        draft = sequence.proposer.propose(sequence.tokens, most)
        need = -(-(end + len(draft)) // size) - len(sequence.table)
        if need > 0:
            sequence.table += self._blocks.allocate(need)
        return replace(row, count=row.count + len(draft), draft=draft)

    def give_up(self, sequence: Sequence, drafted: int) -> None:
        """The sequence gets no more drafts."""
        self._counters.drafts += 1
        self._counters.draft_tokens += drafted
        sequence.draft_length = 0

    def settle(self, sequence: Sequence, drafted: int, accepted: int) -> None:
        """Count the result of a draft, and give back the pages that hold none of its accepted tokens.

        The next draft is at most twice as long as what was accepted of this one, and one token: a sequence whose drafts fail costs one
        row more a step, and one whose drafts hold soon gets the longest.
        """
        self._counters.drafts += 1
        self._counters.draft_tokens += drafted
        self._counters.accepted_tokens += accepted
        sequence.draft_length = 2 * accepted + 1
        used = -(-sequence.computed // self._blocks.page_size)
        self._blocks.release(sequence.table[used:])
        del sequence.table[used:]
