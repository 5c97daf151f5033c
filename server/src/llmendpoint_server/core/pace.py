"""How many prompt tokens a step may compute while others decode, so that their tokens keep their pace.

A step with p prompt tokens takes about D + c p seconds. D is what a step takes that only decodes, and c is what one
more prompt token adds. Both are measured. The step is to take at most STRETCH x D, so p = (STRETCH - 1) x D / c.

- D is the median of the last few steps that only decoded. When MIXED_IN_A_ROW steps in a row had prompts too, one step
  only decodes, so that D is known for the batch as it is now.
- c follows each step that used at least half of its allowance, by a factor of 2 at most. So one step that was slow for
  another reason does not count for much. A step with few prompt tokens says little about c.

Until both are known there is no bound. The allowance is never below 1/32 of the step's budget, so prompts go on. Pure:
all times are arguments, in seconds.
"""

from __future__ import annotations

from collections import deque
from statistics import median

STRETCH = 2.5
MIXED_IN_A_ROW = 16
_DECODES_KEPT = 5
_LEAST_SHARE = 32
_MOST_CHANGE = 2.0


class Pace:
    """`budget`: the most tokens of a step."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._least = max(1, budget // _LEAST_SHARE)
        self._decodes: deque[float] = deque(maxlen=_DECODES_KEPT)
        self._per_token = 0.0
        """c; 0 until it is known"""
        self._mixed_in_a_row = 0

    def allowance(self) -> int:
        """The most prompt tokens of the next step, if it decodes too. 0: it is to decode alone."""
        if self._mixed_in_a_row >= MIXED_IN_A_ROW:
            return 0
        if not self._decodes or not self._per_token:
            return self._budget
        wanted = (STRETCH - 1) * median(self._decodes) / self._per_token
        return int(min(max(wanted, self._least), self._budget))

    def observe(self, prompt_tokens: int, decodes: bool, seconds: float) -> None:
        """Record one step: how many prompt tokens it computed, whether it decoded, and how long it took."""
        seconds = max(seconds, 0.0)
        allowed = self.allowance() if decodes else self._budget
        if not prompt_tokens:
            self._decodes.append(seconds)
            self._mixed_in_a_row = 0
            return
        self._mixed_in_a_row = self._mixed_in_a_row + 1 if decodes else 0
        if decodes and not self._decodes:
            return
        sample = max(seconds - median(self._decodes), 0.0) if decodes else seconds
        self._learn(sample / prompt_tokens, exact=2 * prompt_tokens >= allowed, bound=not decodes)

    def _learn(self, sample: float, *, exact: bool, bound: bool) -> None:
        """`bound`: the sample holds the time of the whole step, so c is not above it."""
        known = self._per_token
        if not known:
            self._per_token = sample
        elif exact or (bound and sample < known):
            self._per_token = min(max(sample, known / _MOST_CHANGE), known * _MOST_CHANGE)

    def seconds(self, prompt_tokens: int, decodes: bool) -> float:
        """How long it takes to compute so many prompt tokens, with or without others that decode. 0 while unknown."""
        whole = prompt_tokens * self._per_token
        if not decodes or not self._decodes or not self._per_token:
            return whole
        steps = prompt_tokens / max(self.allowance(), self._least)
        return whole + steps * median(self._decodes)
