"""One step's work: which tokens of which sequences. Also how a request ends after a fault of the scheduler."""

from __future__ import annotations

from collections.abc import Sequence as Rows
from dataclasses import dataclass

from llmendpoint_server.core.request import RequestOutput, TokenLogprobs
from llmendpoint_server.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Scheduled:
    """Compute tokens `start` to `start + count` of a sequence. `draft`: the last of them are guesses, which follow the sequence's own
    tokens. `sample`: the next token is sampled from the last own token, and from each of the draft."""

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
        if not sequence.scores:
            return range(0)
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


@dataclass(frozen=True, slots=True)
class Sampled:
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


@dataclass(frozen=True, slots=True)
class Batch:
    """What one step computes, and when it was scheduled (seconds)."""

    rows: tuple[Scheduled, ...]
    time: float

    @property
    def tokens(self) -> int:
        return sum(row.count for row in self.rows)

    @property
    def prompt_tokens(self) -> int:
        """Of sequences that do not decode yet."""
        return sum(row.count for row in self.rows if not row.sequence.decoding)

    @property
    def drafted(self) -> bool:
        return any(row.draft for row in self.rows)

    @property
    def decoding(self) -> int:
        """How many of its rows decode."""
        return sum(row.sequence.decoding for row in self.rows)


def check_fits(batch: Batch, sampled: Rows[Sampled]) -> None:
    """Raises ValueError if not just the rows that sample have tokens, or if not just those that ask for log probabilities have
    them, one for each token of the answer or of the prompt."""
    if [bool(one.tokens) for one in sampled] != [row.sample for row in batch.rows]:
        given = [len(one.tokens) for one in sampled]
        raise ValueError(f"The model gave {given} tokens for {len(batch.rows)} rows.")
    for row, one in zip(batch.rows, sampled, strict=True):
        wanted = 0 if row.sequence.request.sampling.logprobs is None else len(one.tokens)
        if len(one.logprobs) != wanted:
            raise ValueError(f"The model gave {len(one.logprobs)} log probabilities for {wanted} tokens.")
        if len(one.prompt_logprobs) != len(row.scored):
            told = f"{len(one.prompt_logprobs)} log probabilities for {len(row.scored)} tokens of a prompt"
            raise ValueError(f"The model gave {told}.")


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that ended because of the scheduler's own state, and the exception."""

    end: RequestOutput
    error: Exception
