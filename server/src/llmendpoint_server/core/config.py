"""What a scheduler is told once, at its start."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    max_model_len: int
    max_num_seqs: int
    max_queued_requests: int
    max_batched_tokens: int
    vocab_size: int
    eos_token_ids: frozenset[int] = frozenset()
    prefix_caching: bool = True
    prefix_key: bytes = b""
    model_revision: str = ""
    sliding_window: int | None = None
    """the most keys that a query sees in any layer, its own included; None if a layer has no window"""
    max_queued_tokens: int = 2**20
    max_adapters: int = 0
    """LoRA adapters that may be loaded at one time"""
    num_speculative_tokens: int = 0
    """the most tokens that one draft has; 0: no speculation"""

    def check(self, pages: int, page_size: int) -> None:
        """Raises ValueError if one sequence does not fit in the pages, or one row each does not fit in a step."""
        if self.max_model_len > pages * page_size:
            raise ValueError(
                f"max_model_len {self.max_model_len} does not fit in {pages} pages of {page_size}."
            )
        if self.max_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_batched_tokens {self.max_batched_tokens} is less than max_num_seqs {self.max_num_seqs}."
            )
