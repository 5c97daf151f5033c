"""What a request asks for, and how it can end."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import msgspec

from llmendpoint_server import limits
from llmendpoint_server.core.grammar import Grammar
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

    What changes logits before the draw, by vLLM's names: `logit_bias` (token, what is added), each token once;
    `repetition_penalty` (1 is off) divides the positive logits of tokens in prompt and answer, and multiplies the negative
    ones; `frequency_penalty` and `presence_penalty` count the answer alone. `min_p`: only tokens that have this share of the
    most probable one's probability, after temperature; 0 is off. No token ends the answer before its `min_tokens` tokens.
    `prompt_logprobs`: as `logprobs`, of the prompt's tokens. `grammar`: what the answer must follow; where that ends, the answer
    ends, even with `ignore_eos` or `min_tokens`.
    """

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop_token_ids: frozenset[int] = frozenset()
    ignore_eos: bool = False
    logprobs: int | None = None
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    min_tokens: int = 0
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        self._check_draw()
        self._check_stops()
        self._check_changes()
        for name, alternatives in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if alternatives is not None:
                _check_range(name, alternatives, 0, limits.LOGPROBS_MAX)

    def _check_draw(self) -> None:
        _check_range("temperature", self.temperature, limits.TEMPERATURE_MIN, limits.TEMPERATURE_MAX)
        if not limits.TOP_P_MIN < self.top_p <= limits.TOP_P_MAX:
            raise InvalidRequest(
                f"top_p is {self.top_p}; it must be greater than {limits.TOP_P_MIN:g} and at most {limits.TOP_P_MAX:g}.",
                param="top_p",
            )
        _check_range("top_k", self.top_k, 0, limits.TOP_K_MAX)
        if self.seed is not None:
            _check_range("seed", self.seed, limits.SEED_MIN, limits.SEED_MAX)

    def _check_stops(self) -> None:
        _check_range("max_tokens", self.max_tokens, limits.MAX_TOKENS_MIN, limits.MAX_TOKENS_MAX)
        if not 0 <= self.min_tokens <= self.max_tokens:
            raise InvalidRequest(
                f"min_tokens is {self.min_tokens}; it must be 0 to max_tokens, which is {self.max_tokens}.",
                param="min_tokens",
            )
        if len(self.stop_token_ids) > limits.STOP_TOKEN_IDS_MAX:
            raise InvalidRequest(
                f"stop_token_ids holds {len(self.stop_token_ids)} ids; it takes at most {limits.STOP_TOKEN_IDS_MAX}.",
                param="stop_token_ids",
            )

    def _check_changes(self) -> None:
        _check_range("min_p", self.min_p, limits.MIN_P_MIN, limits.MIN_P_MAX)
        _check_range("frequency_penalty", self.frequency_penalty, limits.PENALTY_MIN, limits.PENALTY_MAX)
        _check_range("presence_penalty", self.presence_penalty, limits.PENALTY_MIN, limits.PENALTY_MAX)
        _check_range(
            "repetition_penalty", self.repetition_penalty, limits.REPETITION_PENALTY_MIN, limits.REPETITION_PENALTY_MAX
        )  # fmt: skip
        if len(self.logit_bias) > limits.LOGIT_BIAS_TOKENS_MAX:
            raise InvalidRequest(
                f"logit_bias holds {len(self.logit_bias)} tokens; it takes at most {limits.LOGIT_BIAS_TOKENS_MAX}.",
                param="logit_bias",
            )
        if len({token for token, _ in self.logit_bias}) < len(self.logit_bias):
            raise InvalidRequest("logit_bias names a token twice; name each once.", param="logit_bias")
        for token, bias in self.logit_bias:
            if not limits.LOGIT_BIAS_MIN <= bias <= limits.LOGIT_BIAS_MAX:
                raise InvalidRequest(
                    f"logit_bias[{token}] is {bias}; it must be {limits.LOGIT_BIAS_MIN} to {limits.LOGIT_BIAS_MAX}.",
                    param="logit_bias",
                )

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def changes_logits(self) -> bool:
        """Whether its tokens are not drawn from the model's own logits."""
        return bool(
            self.grammar is not None
            or self.logit_bias
            or self.repetition_penalty != 1
            or self.frequency_penalty
            or self.presence_penalty
            or self.min_tokens
            or (self.min_p and not self.greedy)
        )


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
    adapter: str = ""
    """the name of a LoRA adapter; "": the model itself"""

    def __post_init__(self) -> None:
        _check_range("n", self.n, limits.N_MIN, limits.N_MAX)
        if len(self.salt) > limits.CACHE_SALT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"cache_salt has {len(self.salt)} characters; it takes at most {limits.CACHE_SALT_CHARACTERS_MAX}.",
                param="cache_salt",
            )


class TokenLogprobs(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The natural log of the model's probability for a token, before all that the request's parameters change. `top`: the most
    probable tokens and theirs, the most probable first, whether the chosen one is among them or not. -inf: the model
    rules the token out."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class RequestOutput(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """New tokens of one answer of a request, and how it ended if it did. `index`: 0 to n - 1.

    With `STOP` the last token is the one that ended it; it is not part of the text. `cached_tokens`: prompt tokens that
    came from the prefix cache. `detail` and `retry_after` (seconds) explain `REJECTED`, `EXPIRED` and `FAILED`.
    `logprobs`: one for each of `tokens`, if the request asks for them. `prompt_logprobs`: one for each token of the prompt, None
    for the first; of answer 0 alone. The engine gives them piece by piece, in their order, before and with the first token. `began`,
    `first_token`: in the output with an answer's first token, when the engine began to compute it, and when it had that token (seconds, as
    `arrival`).

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
    prompt_logprobs: tuple[TokenLogprobs | None, ...] = ()
    began: float = 0.0
    first_token: float = 0.0
