"""Everything that this package raises on purpose.

    ServerError
    ├── RequestError             caused by the caller or a passing state: an HTTP answer, the server goes on
    │   ├── InvalidRequest       400, names the field
    │   │   ├── PromptTooLong    400, names both numbers
    │   │   └── AdapterUnfit     400: a LoRA adapter that this model cannot have
    │   ├── BodyTooLarge         413
    │   ├── BodyTimeout          408
    │   ├── UnknownModel         404
    │   ├── AdapterNotFound      404: nothing lies at its source, or no adapter has this name
    │   ├── AdaptersFull         409: there are as many adapters as may be
    │   ├── QueueFull            429 with Retry-After
    │   ├── DeadlineExceeded     429 with Retry-After: the request did not begin to run in time, or would not have
    │   ├── Unavailable          503 with Retry-After: loading, draining or failed; another replica may answer
    │   └── EngineFailed         500: the engine lost this request
    │       └── EngineEnded      500: the engine lost all requests; it has ended, or makes no more steps
    ├── LoadError                the process ends, with the exit code of docs/reference/exit-codes.md
    │   ├── BadConfiguration     2
    │   ├── ModelNotFound        3
    │   ├── ModelUnavailable     1: the hub does not answer; a later start may succeed
    │   ├── UnsupportedArchitecture  4
    │   │   └── UnsupportedPooling   4: the same, of a model that embeds or scores
    │   ├── FormatRefused        5: weights that are pickles
    │   ├── NoSpace              6: the model does not fit into the volume
    │   ├── AccessDenied         7: the source requires other credentials
    │   ├── ModelCorrupt         8: the bytes that arrive are not those that the source lists
    │   └── SourceChanged        9: the source's content has changed since it was resolved
    └── ProtocolError            the two processes do not understand each other

Each message says what was wrong, where, and what would be right. `status`, `type` and `code` are OpenAI's error fields;
`exit_code` is the exit code of `llmendpoint-server`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class ServerError(Exception):
    """Base of this package's errors."""

    exit_code: ClassVar[int] = 1


MESSAGE_CHARACTERS_MAX = 1_000
PARAM_CHARACTERS_MAX = 200
MODEL_SHOWN = 100
"""Characters to show of a model's name from a caller."""


class RequestError(ServerError):
    """One request cannot be answered; all others are unaffected.

    `param`: the field at fault. `retry_after`: seconds. Both texts are cut, because they may quote the caller.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: ClassVar[str | None] = None

    def __init__(self, message: str, *, param: str | None = None, retry_after: float | None = None) -> None:
        self.message = message[:MESSAGE_CHARACTERS_MAX]
        super().__init__(self.message)
        self.param = param and param[:PARAM_CHARACTERS_MAX]
        self.retry_after = retry_after


class InvalidRequest(RequestError):
    status = 400
    type = "invalid_request_error"


class PromptTooLong(InvalidRequest):
    code = "context_length_exceeded"

    def __init__(
        self, prompt_tokens: int, max_model_len: int, param: str = "messages", *, at_least: bool = False
    ) -> None:
        # The first words are OpenAI's and vLLM's: clients such as LiteLLM know the error by them.
        super().__init__(
            f"This model's maximum context length is {max_model_len} tokens of prompt and output together. The prompt has "
            f"{'at least ' * at_least}{prompt_tokens} tokens: shorten it to at most {max_model_len - 1} tokens.",
            param=param,
        )


class BodyTooLarge(RequestError):
    status = 413
    type = "invalid_request_error"
    code = "body_too_large"


class BodyTimeout(RequestError):
    status = 408
    type = "invalid_request_error"
    code = "body_timeout"


class UnknownModel(RequestError):
    status = 404
    type = "invalid_request_error"
    code = "model_not_found"


def unknown_model(name: str, served: Sequence[str]) -> UnknownModel:
    return UnknownModel(
        f"The model {name[:MODEL_SHOWN]!r} does not exist here; this server has {', '.join(served)}.",
        param="model",
    )


class AdapterUnfit(InvalidRequest):
    code = "adapter_unfit"


class AdapterNotFound(RequestError):
    status = 404
    type = "invalid_request_error"
    code = "adapter_not_found"


class AdaptersFull(RequestError):
    status = 409
    type = "invalid_request_error"
    code = "adapters_full"


class QueueFull(RequestError):
    status = 429
    type = "rate_limit_error"
    code = "queue_full"


class DeadlineExceeded(RequestError):
    """429 and not a 5xx, because the replica is well: it has too much to do."""

    status = 429
    type = "rate_limit_error"
    code = "deadline_exceeded"


class Unavailable(RequestError):
    status = 503
    type = "server_error"
    code = "unavailable"


class EngineFailed(RequestError):
    status = 500
    type = "server_error"
    code = "engine_failed"


class EngineEnded(EngineFailed):
    """The engine ended, perhaps because of one of its requests. The gateway must know which requests those were."""


class LoadError(ServerError):
    """The model cannot be served; the process ends with `exit_code`."""


class BadConfiguration(LoadError):
    exit_code = 2


class ModelNotFound(LoadError):
    exit_code = 3


class ModelUnavailable(LoadError):
    exit_code = 1


class FormatRefused(LoadError):
    exit_code = 5


class NoSpace(LoadError):
    exit_code = 6


class AccessDenied(LoadError):
    exit_code = 7


class ModelCorrupt(LoadError):
    exit_code = 8


class SourceChanged(LoadError):
    exit_code = 9


class UnsupportedArchitecture(LoadError):
    """The model would load, and give wrong text. It is refused, and the message lists what can be served."""

    exit_code = 4

    def __init__(self, architecture: str, why: str, supported: Sequence[str]) -> None:
        super().__init__(
            f"The architecture {architecture!r} cannot be served: {why}. What can: {', '.join(supported)}, and other "
            "models of transformers whose every layer attends through its attention interface, in full or with a "
            "sliding window."
        )
        self.architecture = architecture
        self.why = why


class UnsupportedPooling(UnsupportedArchitecture):
    """The same, of a model that embeds or scores."""

    def __init__(self, architecture: str, why: str) -> None:
        LoadError.__init__(
            self,
            f"The model ({architecture!r}), which is made to embed or to score, cannot be served: {why}. What can: encoders "
            "and decoders of transformers with mean, cls or last-token pooling, and models that score a pair of texts with "
            "one label.",
        )
        self.architecture = architecture
        self.why = why


class ProtocolError(ServerError):
    """A frame between the API process and the engine process is not one of `protocol`'s messages."""
