"""What the clients ask: token ids at random, from a seed, so that every run and every server gets the same."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tests.bench.engine.shapes import LLAMA
from tests.bench.serving.client import Ask

LONG_PROMPT = 2000
SHARED, WHOLE = 900, 1000
"""Tokens of a prefix that all prompts share, and of a prompt."""


class Prompter:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def tokens(self, count: int) -> list[int]:
        return [self._random.randrange(3, LLAMA.vocab) for _ in range(count)]

    def even(self, count: int, tokens_in: int, tokens_out: int) -> list[Ask]:
        return [Ask(self.tokens(tokens_in), tokens_out) for _ in range(count)]

    def conversations(self, count: int) -> list[Ask]:
        """Lengths as in ShareGPT's conversations: log-normal, about 200 tokens in and 200 out in the mean; a prompt has
        at most 1,024 and an answer at most 512."""
        return [
            Ask(self.tokens(self._length(90, 1.3, 1024)), self._length(130, 0.9, 512)) for _ in range(count)
        ]

    def sharing(self) -> Iterator[Ask]:
        """Prompts without end that share a prefix and ask for one token."""
        prefix = self.tokens(SHARED)
        while True:
            yield Ask((*prefix, *self.tokens(WHOLE - SHARED)), 1)

    def _length(self, median: float, sigma: float, most: int) -> int:
        return min(most, max(4, round(median * self._random.lognormvariate(0, sigma))))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` of the values do not pass."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * round(share * 1000) // 1000) - 1)]
