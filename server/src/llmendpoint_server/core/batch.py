"""One step's work: which tokens of which sequences. Also how a request ends after a fault of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass
from functools import cached_property

import msgspec

from llmendpoint_server.core.request import RequestOutput, TokenLogprobs
from llmendpoint_server.core.sequence import Sequence

UNSCORED = range(0)


class Scheduled(msgspec.Struct, frozen=True, gc=False):
    """Compute tokens `start` to `start + count` of a sequence. `draft`: the last of them are guesses, which follow the sequence's own
    tokens. `sample`: the next token is sampled from the last own token, and from each of the draft.

    A Struct, as `Sampled` is, because each row of each step has one.
    """

    sequence: Sequence
    start: int
    count: int
    draft: tuple[int, ...] = ()

    @property
    def sample(self) -> bool:
        return self.start + self.count - len(self.draft) == len(self.sequence.tokens)

    @property
    def scored(self) -> range:
        """The positions whose logits say how probable the prompt's next token was, which the request wants to know."""
        sequence = self.sequence
        if sequence.decoding or not sequence.scores:
            return UNSCORED
        end = min(self.start + self.count, len(sequence.request.prompt) - 1)
        return range(max(self.start, sequence.scored - 1), end)

    @property
    def token(self) -> int:
        """The token to compute, of a row that has one."""
        return self.sequence.tokens[self.start]

    @property
    def tokens(self) -> list[int]:
        """The `count` tokens to compute."""
        return self.sequence.tokens[self.start : self.start + self.count] + list(self.draft)


class Expected(Scheduled, frozen=True, gc=False):
    """A row of a step that begins before the one before it has ended, which gives the row its only token."""

    @property
    def sample(self) -> bool:
        return True

    @property
    def token(self) -> int:
        """Any: the device has the right one."""
        return 0


class Sampled(msgspec.Struct, frozen=True, gc=False):
    """What a step gave for a row. `tokens`, in their order: none where the row does not sample, and one or more where it does. A
    negative token means that the model's output was not a number. `logprobs`: one for each token, where the request asks for them.
    `prompt_logprobs`: one for each position that the row scores, of the token that follows it. `fault`: why the request cannot go
    on; then the tokens mean nothing."""

    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    fault: str = ""

    def first(self, count: int) -> Sampled:
        return Sampled(self.tokens[:count], self.logprobs[:count], self.prompt_logprobs)


NOTHING = Sampled(())
"""Of a row that does not sample."""


@dataclass(frozen=True)
class Batch:
    """What one step computes, and when it was scheduled (seconds)."""

    rows: tuple[Scheduled, ...]
    time: float

    @property
    def tokens(self) -> int:
        return sum([row.count for row in self.rows])

    @property
    def prompt_tokens(self) -> int:
        """Of sequences that do not decode yet."""
        return sum([row.count for row in self.rows if not row.sequence.decoding])

    @cached_property
    def drafted(self) -> bool:
        return any(row.draft for row in self.rows)

    @property
    def decoding(self) -> int:
        """How many of its rows decode."""
        return sum([row.sequence.decoding for row in self.rows])

    @cached_property
    def plain(self) -> bool:
        """Whether each row computes one token, samples from it, and scores nothing, as rows that decode do: then no row need be
        asked for it again while the step runs."""
        return self.expected or all(row.count == 1 and row.sample and not row.scored for row in self.rows)

    @property
    def expected(self) -> bool:
        """Whether its rows are `Expected`: all are, or none."""
        return isinstance(self.rows[0], Expected) if self.rows else False


def check_fits(batch: Batch, sampled: Rows[Sampled]) -> None:
    """Raises ValueError if not just the rows that sample have tokens, or if not just those that ask for log probabilities have
    them, one for each token of the answer or of the prompt."""
    samples = [True] * len(batch.rows) if batch.plain else [row.sample for row in batch.rows]
    if [bool(one.tokens) for one in sampled] != samples:
        given = [len(one.tokens) for one in sampled]
        raise ValueError(f"The model gave {given} tokens for {len(batch.rows)} rows.")
    for row, one in zip(batch.rows, sampled, strict=True):
        if (row.sequence.request.sampling.logprobs is not None) or one.logprobs:
            _check_logprobs(row, one)
        scored = 0 if batch.plain else len(row.scored)
        if len(one.prompt_logprobs) != scored:
            told = f"{len(one.prompt_logprobs)} log probabilities for {scored} tokens of a prompt"
            raise ValueError(f"The model gave {told}.")


def _check_logprobs(row: Scheduled, one: Sampled) -> None:
    wanted = 0 if row.sequence.request.sampling.logprobs is None else len(one.tokens)
    if len(one.logprobs) != wanted:
        raise ValueError(f"The model gave {len(one.logprobs)} log probabilities for {wanted} tokens.")


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that ended because of the scheduler's own state, and the exception."""

    end: RequestOutput
    error: Exception
