"""How many sequences and how many tokens a step on CPU computes, if nobody says: from what a few steps took.

- Sequences: the largest of SEQUENCES that still pays. Twice as many pay if they give GAIN times the tokens a second. A
  processor that reads its weights in the time in which it multiplies 8 rows gains nothing from 64, and each of them waits.
- Tokens: the largest of TOKENS whose step takes at most STEP_SECONDS. That is how long a prompt may hold up the first
  token of the one behind it.

Both are powers of two within bounds, and each time is the median of several runs: the noise of a machine changes neither.
Pure: the times are arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2
from statistics import median

SEQUENCES = (4, 8, 16, 32, 64)
TOKENS = (128, 256, 512, 1024, 2048)
GAIN = 1.1
STEP_SECONDS = 0.2
ROOM = 4
UNMEASURED_SEQUENCES = 16
"""if the steps are so slow that the time did not suffice for more"""


@dataclass(frozen=True, slots=True)
class Measured:
    """Steps of one size: so many sequences that decode, or so many tokens of a prompt. `runs`: seconds of each."""

    size: int
    runs: tuple[float, ...]

    @property
    def seconds(self) -> float:
        return median(self.runs)


def sequences_that_pay(decodes: Sequence[Measured]) -> int:
    """The largest batch that pays. `decodes`: the first of SEQUENCES and those after it that were measured."""
    best, *larger = decodes
    for step in larger:
        ratio = step.size / best.size
        if step.seconds * GAIN ** log2(ratio) <= best.seconds * ratio:
            best = step
    cut_short = best is decodes[-1] and best.size < SEQUENCES[-1]
    return max(best.size, UNMEASURED_SEQUENCES) if cut_short else best.size


def tokens_in_time(steps: Sequence[Measured], sequences: int) -> int:
    """The largest budget whose step is in time, by the time for each token of the largest step that was measured; but at least
    ROOM tokens for each sequence, up to the last of TOKENS, so that prompts go on beside a full batch."""
    largest = max(steps, key=lambda step: step.size)
    fitting = [tokens for tokens in TOKENS if tokens * largest.seconds <= STEP_SECONDS * largest.size]
    return max(*fitting, TOKENS[0], min(ROOM * sequences, TOKENS[-1]))
