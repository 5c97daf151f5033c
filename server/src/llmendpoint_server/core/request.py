"""What a request asks for, and how it can end."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from llmendpoint_server.errors import InvalidRequest


class FinishReason(enum.Enum):
    """Why a request ended. Every request ends exactly once, with one of these."""

    STOP = "stop"
    """An end-of-sequence token, or one of `stop_token_ids`."""
    LENGTH = "length"
    """`max_tokens`, or the model's maximum length."""
    ABORTED = "aborted"
    """The caller went away, or found a stop string."""
    REJECTED = "rejected"
    """Never started: the queue is full or the engine is draining. May be retried."""
    FAILED = "failed"
    """The engine could not compute it. The others go on."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen, and when to stop.

    `temperature` 0 is greedy. `top_k` 0 is off. `seed` makes the choice repeatable; without one the engine draws one.
    `stop_token_ids` end the request besides the model's own end-of-sequence tokens, which `ignore_eos` switches off.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise InvalidRequest(
                f"max_tokens is {self.max_tokens}; it must be at least 1.", param="max_tokens"
            )
        if not (math.isfinite(self.temperature) and 0 <= self.temperature <= 2):
            raise InvalidRequest(
                f"temperature is {self.temperature}; it must be between 0 and 2.", param="temperature"
            )
        if not 0 < self.top_p <= 1:
            raise InvalidRequest(
                f"top_p is {self.top_p}; it must be greater than 0 and at most 1.", param="top_p"
            )
        if self.top_k < 0:
            raise InvalidRequest(f"top_k is {self.top_k}; it must be 0 (off) or more.", param="top_k")
        if self.seed is not None and not -(2**63) <= self.seed < 2**63:
            raise InvalidRequest(f"seed is {self.seed}; it must fit in 64 bits.", param="seed")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Request:
    """One sequence to generate. `salt` separates prefix caches: equal prompts share pages only under equal salts."""

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    arrival: float = 0.0
    salt: str = ""


@dataclass(frozen=True, slots=True)
class RequestOutput:
    """New tokens of one request, and how it ended if it did.

    With `STOP` the last token is the one that stopped it, and no part of the text. `cached_tokens` is how much of the
    prompt came from the prefix cache. `detail` and `retry_after` (seconds) explain `REJECTED` and `FAILED`.
    """

    id: str
    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None
    cached_tokens: int = 0
    detail: str = ""
    retry_after: float = 0.0
