"""What a request asks for, and how it can end."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from llmendpoint_server import limits
from llmendpoint_server.errors import InvalidRequest


def _check_range(name: str, value: float, lowest: float, highest: float) -> None:
    if not lowest <= value <= highest:  # NaN fails this comparison too
        raise InvalidRequest(f"{name} is {value}; it must be {lowest} to {highest}.", param=name)


class FinishReason(enum.Enum):
    """Why an answer of a request ended. Each ends exactly once, with one of these."""

    STOP = "stop"
    """An end-of-sequence token, or one of `stop_token_ids`."""
    LENGTH = "length"
    """`max_tokens`, or the model's maximum length."""
    ABORTED = "aborted"
    """The caller disconnected, or its text reached a stop string."""
    REJECTED = "rejected"
    """Never started: the queue is full or the engine is draining. May be retried."""
    EXPIRED = "expired"
    """Never started: its deadline passed while it waited, or would have. May be retried."""
    FAILED = "failed"
    """The engine could not compute it. Other requests are not affected."""
    LOST = "lost"
    """The engine has dropped all of its requests and starts anew. May be retried."""


class Priority(enum.Enum):
    """How soon a waiting request starts, and how late a running one is preempted."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen, and when to stop. Raises InvalidRequest for a value outside `limits`.

    `temperature` 0 is greedy. `top_k` 0 is off. `seed` makes the choice repeatable; without one the engine draws one.
    `stop_token_ids` end the request, as the model's own end-of-sequence tokens do; `ignore_eos` switches off the
    latter. `logprobs`: how many alternatives each token's log probabilities list; None: none are computed.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _check_range("max_tokens", self.max_tokens, limits.MAX_TOKENS_MIN, limits.MAX_TOKENS_MAX)
        _check_range("temperature", self.temperature, limits.TEMPERATURE_MIN, limits.TEMPERATURE_MAX)
        if not limits.TOP_P_MIN < self.top_p <= limits.TOP_P_MAX:
            raise InvalidRequest(
                f"top_p is {self.top_p}; it must be greater than {limits.TOP_P_MIN:g} and at most {limits.TOP_P_MAX:g}.",
                param="top_p",
            )
        _check_range("top_k", self.top_k, 0, limits.TOP_K_MAX)
        if self.seed is not None:
            _check_range("seed", self.seed, limits.SEED_MIN, limits.SEED_MAX)
        if len(self.stop_token_ids) > limits.STOP_TOKEN_IDS_MAX:
            raise InvalidRequest(
                f"stop_token_ids holds {len(self.stop_token_ids)} ids; it takes at most {limits.STOP_TOKEN_IDS_MAX}.",
                param="stop_token_ids",
            )
        if self.logprobs is not None:
            _check_range("logprobs", self.logprobs, 0, limits.LOGPROBS_MAX)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt, and how many answers to it: `n`. `salt` separates prefix caches: equal prompts share pages only under equal
    salts.

    `arrival` and `deadline`: seconds of the machine's monotonic clock, which both processes read. A request that has not
    begun to run at its deadline ends. The seconds are checked where the header is read.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: SamplingParams
    arrival: float = 0.0
    salt: str = ""
    priority: Priority = Priority.NORMAL
    deadline: float | None = None
    n: int = 1

    def __post_init__(self) -> None:
        _check_range("n", self.n, limits.N_MIN, limits.N_MAX)
        if len(self.salt) > limits.CACHE_SALT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"cache_salt has {len(self.salt)} characters; it takes at most {limits.CACHE_SALT_CHARACTERS_MAX}.",
                param="cache_salt",
            )


class TokenLogprobs(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The natural log of the model's probability for a token, before temperature, top_p and top_k. `top`: the most
    probable tokens and theirs, the most probable first, whether the chosen one is among them or not. -inf: the model
    rules the token out."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class RequestOutput(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """New tokens of one answer of a request, and how it ended if it did. `index`: 0 to n - 1.

    With `STOP` the last token is the one that ended it; it is not part of the text. `cached_tokens`: prompt tokens that
    came from the prefix cache. `detail` and `retry_after` (seconds) explain `REJECTED`, `EXPIRED` and `FAILED`.
    `logprobs`: one for each of `tokens`, if the request asks for them. `began`, `first_token`: in the output with an
    answer's first token, when the engine began to compute it, and when it had that token (seconds, as `arrival`).

    A Struct without empty fields, because one is encoded and decoded for each token.
    """

    id: str
    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None
    cached_tokens: int = 0
    detail: str = ""
    retry_after: float = 0.0
    logprobs: tuple[TokenLogprobs, ...] = ()
    index: int = 0
    began: float = 0.0
    first_token: float = 0.0
