"""What the engine has done since its start."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
"""Bounds of the histogram of the tokens that a step computes."""


@dataclass(slots=True)
class Counters:
    """Counters that only grow."""

    steps: int = 0
    computed_tokens: int = 0
    """in all steps, of prompts and of answers, guessed ones too"""
    step_tokens: tuple[int, ...] = (0,) * (len(STEP_TOKENS) + 1)
    """how many steps had up to so many tokens as each of STEP_TOKENS says, and more than the one before; last: more than all"""
    prompt_tokens: int = 0
    """each prompt counts once, at its first output token, whether its tokens were computed or found in the cache"""
    generated_tokens: int = 0
    prefix_cache_queries: int = 0
    """prompt tokens looked up"""
    prefix_cache_hits: int = 0
    """prompt tokens found"""
    preemptions: int = 0
    refused_requests: int = 0
    """because too many requests waited"""
    refused_tokens: int = 0
    """because the waiting prompts had too many tokens"""
    deadlines_unreachable: int = 0
    """refused because the first token was expected after the deadline"""
    deadlines_passed: int = 0
    """ended because the deadline passed while the request waited"""
    drafts: int = 0
    draft_tokens: int = 0
    """tokens that drafts had"""
    accepted_tokens: int = 0
    """tokens of drafts that are part of an answer"""

    def count_step(self, tokens: int) -> None:
        self.steps += 1
        self.computed_tokens += tokens
        place, counts = bisect_left(STEP_TOKENS, tokens), self.step_tokens
        self.step_tokens = (*counts[:place], counts[place] + 1, *counts[place + 1 :])

    def count_refusal(self, *, by_requests: bool) -> None:
        """`by_requests`: which bound of the queue was reached; False: the one in tokens."""
        if by_requests:
            self.refused_requests += 1
        else:
            self.refused_tokens += 1

    @property
    def uncached_share(self) -> float:
        """The share of prompt tokens that was not found in the prefix cache."""
        return 1.0 - self.prefix_cache_hits / max(self.prefix_cache_queries, 1)
