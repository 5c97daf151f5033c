"""How many prompt tokens a step may compute while others decode, so that their tokens keep their pace.

A step with p prompt tokens takes about D + F + c p seconds. D is what a step takes that only decodes, F is what a step with
prompts takes beside that however few they are, and c is what one more prompt token adds. All are measured. A step may take up to
S x D, so p = ((S - 1) x D - F) / c. But p is at least F / c: smaller chunks would take more time for being chunks than for
their tokens. F is large on CUDA, where steps that only decode are graphs and the others are not.

S is STRETCH, or 1 + FILL x prompts / decoding if that is more: how many requests could get prompt tokens in this step,
for each one that decodes. So the bound is for a batch where most requests decode. One that has just begun with many
prompts fills first: steps with few rows are the least efficient ones.

- D is the median of the last few steps that only decoded. If more requests decode now than in them, each adds c, and at
  most its own share of D. When MIXED_IN_A_ROW steps in a row had prompts too, one step
  only decodes, so that D is known for the batch as it is now.
- c follows each step that used at least half of its allowance, by a factor of 2 at most. So one step that was slow for
  another reason does not count for much. A step with few prompt tokens says little about c.
- F, and c with it, follow the last steps with prompts, if some of them had 1.5 times as many prompt tokens as others: c is the slope
  between the halves with fewer and with more of them, F the median of what is left.
- F and c are told apart badly where steps differ for other reasons, too: the later tokens of a long prompt take longer. But no
  step takes more for each of its prompt tokens, F included, than a smaller one. So beside D it may take the larger of (S - 1) x D and
  2 x F at the rate of the largest of the last steps. When F and c are right, that is the p above.

Until both are known there is no bound. The allowance is never below 1/32 of the step's budget, so prompts go on. Pure:
all times are arguments, in seconds.
"""

from __future__ import annotations

from collections import deque
from statistics import median

STRETCH = 2.5
FILL = 4.0
MIXED_IN_A_ROW = 16
_DECODES_KEPT = 5
_MIXED_KEPT = 16
_SPREAD = 1.5
_LARGEST = 4
_LEAST_SHARE = 32
_MOST_CHANGE = 2.0


class Pace:
    """`budget`: the most tokens of a step."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._least = max(1, budget // _LEAST_SHARE)
        self._decodes: deque[tuple[float, int]] = deque(maxlen=_DECODES_KEPT)
        """seconds and rows of steps that only decoded"""
        self._per_token = 0.0
        """c; 0 until it is known"""
        self._fixed = 0.0
        """F"""
        self._mixed: deque[tuple[int, float]] = deque(maxlen=_MIXED_KEPT)
        """prompt tokens of steps that decoded too, and their seconds beside D"""
        self._mixed_in_a_row = 0
        self._allowed = budget
        """of the last step"""

    def allowance(self, decoding: int, prompts: int) -> int:
        """The most prompt tokens of the next step, in which so many requests decode, and so many others could get some
        of these tokens. 0: it is to decode alone."""
        self._allowed = 0 if self._mixed_in_a_row >= MIXED_IN_A_ROW else self._bound(decoding, prompts)
        return self._allowed

    def _bound(self, decoding: int, prompts: int) -> int:
        if not decoding or not self._decodes or not self._per_token:
            return self._budget
        stretch = max(STRETCH, 1 + FILL * prompts / decoding)
        beside = max((stretch - 1) * self._decode_seconds(decoding), 2 * self._fixed)
        wanted = (beside - self._fixed) / self._per_token
        if (each := self._seconds_each()) > 0:
            wanted = min(wanted, beside / each)
        return int(min(max(wanted, self._least), self._budget))

    def _seconds_each(self) -> float:
        """Of a prompt token of the largest of the last steps, F included; 0 while unknown."""
        if len(self._mixed) < _MIXED_KEPT // 2:
            return 0.0
        largest = sorted(self._mixed, key=lambda step: step[0])[-_LARGEST:]
        return median(seconds / tokens for tokens, seconds in largest)

    def _decode_seconds(self, decoding: int) -> float:
        """D for so many rows."""
        seconds = median(seconds for seconds, _ in self._decodes)
        rows = median(rows for _, rows in self._decodes)
        ends = sorted((seconds, seconds * decoding / rows))
        return min(max(seconds + self._per_token * (decoding - rows), ends[0]), ends[1])

    def observe(self, prompt_tokens: int, decoding: int, seconds: float) -> None:
        """Record one step: how many prompt tokens it computed, how many rows decoded, and how long it took."""
        seconds = max(seconds, 0.0)
        if not prompt_tokens:
            self._decodes.append((seconds, max(decoding, 1)))
            self._mixed_in_a_row = 0
            return
        self._mixed_in_a_row = self._mixed_in_a_row + 1 if decoding else 0
        if not decoding:
            self._learn(seconds / prompt_tokens, exact=2 * prompt_tokens >= self._budget, bound=True)
        elif self._decodes:
            beside = max(seconds - self._decode_seconds(decoding), 0.0)
            self._mixed.append((prompt_tokens, beside))
            slope = self._slope()
            if slope is not None:
                self._learn(slope, exact=True, bound=False)
                self._fixed = max(median(one - slope * tokens for tokens, one in self._mixed), 0.0)
            else:
                sample = max(beside - self._fixed, 0.0) / prompt_tokens
                self._learn(sample, exact=2 * prompt_tokens >= self._allowed, bound=False)

    def _slope(self) -> float | None:
        """Seconds of one more prompt token; None if the last steps do not tell."""
        if len(self._mixed) < _MIXED_KEPT // 2:
            return None
        ordered, half = sorted(self._mixed), len(self._mixed) // 2
        (few, short), (many, long) = (
            (median(tokens for tokens, _ in part), median(seconds for _, seconds in part))
            for part in (ordered[:half], ordered[half:])
        )
        return (long - short) / (many - few) if many >= _SPREAD * few and long > short else None

    def _learn(self, sample: float, *, exact: bool, bound: bool) -> None:
        """`bound`: the sample holds the time of the whole step, so c is not above it."""
        known = self._per_token
        if not known:
            self._per_token = sample
        elif exact or (bound and sample < known):
            self._per_token = min(max(sample, known / _MOST_CHANGE), known * _MOST_CHANGE)

    def seconds(self, prompt_tokens: int, decoding: int) -> float:
        """How long it takes to compute so many prompt tokens, while so many requests decode. 0 while unknown."""
        whole = prompt_tokens * self._per_token
        if not decoding or not self._decodes or not self._per_token:
            return whole
        return whole + prompt_tokens / self._bound(decoding, 1) * (
            self._decode_seconds(decoding) + self._fixed
        )
