"""One step's work: which tokens of which sequences. Also how a request ends after a fault of the scheduler."""

from __future__ import annotations

from dataclasses import dataclass

from llmendpoint_server.core.request import RequestOutput
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
    def tokens(self) -> list[int]:
        """The `count` tokens to compute."""
        return self.sequence.tokens[self.start : self.start + self.count] + list(self.draft)


Sampled = tuple[int, ...]
"""The tokens that a step gave for a row, in their order: none where the row does not sample, and one or more where it does. A negative
token means that the model's output was not a number."""


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
    def decoding(self) -> int:
        """How many of its rows decode."""
        return sum(row.sequence.decoding for row in self.rows)


@dataclass(frozen=True, slots=True)
class Fault:
    """A request that ended because of the scheduler's own state, and the exception."""

    end: RequestOutput
    error: Exception
