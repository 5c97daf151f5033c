"""What the engine has done since its start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counters that only grow."""

    steps: int = 0
    prompt_tokens: int = 0
    """each prompt counts once, at its first output token, whether its tokens were computed or found in the cache"""
    generated_tokens: int = 0
    prefix_cache_queries: int = 0
    """prompt tokens looked up"""
    prefix_cache_hits: int = 0
    """prompt tokens found"""
    preemptions: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    """tokens that drafts had"""
    accepted_tokens: int = 0
    """tokens of drafts that are part of an answer"""
