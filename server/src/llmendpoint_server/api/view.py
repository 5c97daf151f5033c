"""What a body asks to see beside text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from llmendpoint_server.api.logprobs import Namer


@dataclass(frozen=True)
class View:
    """`namer`: of the tokens in log probabilities; None: the answers show none. `token_ids`: the ids of prompt and answer are shown.
    `prompt_logprobs`: those of the prompt are, beside an answer. `echo`: each answer begins with its prompt. `prompt_only`: no
    token of the answer is shown. `prompts` and their `prompt_texts` (for an echo), and how many answers to each.
    """

    logprobs: bool = False
    namer: Namer | None = None
    token_ids: bool = False
    prompt_logprobs: bool = False
    echo: bool = False
    prompt_only: bool = False
    prompts: Sequence[tuple[int, ...]] = ()
    prompt_texts: Sequence[str] = ()
    answers: int = 1
    include_usage: bool = False
    continuous_usage: bool = False
    stop_tokens: frozenset[int] = field(default_factory=frozenset)
    """the caller's own, which are named if they end an answer"""
    repeated: Mapping[str, Any] = field(default_factory=dict)
    """of the request, in its answer"""
    include_stop: bool = False
    """what ended an answer is part of its text"""

    @property
    def tokens(self) -> bool:
        """Whether pieces carry the tokens of their text."""
        return self.logprobs or self.token_ids

    @property
    def plain(self) -> bool:
        """Whether all chunks of an answer but the first and the last are the same but for their text."""
        return not self.tokens and not (self.include_usage and self.continuous_usage)

    def prompt_of(self, answer: int) -> tuple[int, ...]:
        return self.prompts[answer // self.answers]

    def prompt_text_of(self, answer: int) -> str:
        return self.prompt_texts[answer // self.answers]


PLAIN = View()
