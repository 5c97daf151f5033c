"""Bodies of the OpenAI API: what is accepted, what is ignored, and what is refused by name.

msgspec decodes them: it stops at the first error and builds nothing that the types do not name. Null means: not given.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import Meta, Raw

from llmendpoint_server import limits
from llmendpoint_server.api.chat_fields import Effort
from llmendpoint_server.api.explain import FORMS, explain, must_be
from llmendpoint_server.api.fields import NOT_GIVEN, Body, CallerText, Count, Metadata, is_neutral
from llmendpoint_server.api.messages import Message
from llmendpoint_server.api.structured import StructuredFields
from llmendpoint_server.errors import InvalidRequest

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "tools": ([],), "tool_choice": ("none",), "functions": ([],), "function_call": ("none",), "modalities": (["text"],),
    "audio": (), "prediction": (), "web_search_options": (), "use_beam_search": (False,), "length_penalty": (1,),
    "bad_words": ([],), "allowed_token_ids": ([],), "logits_processors": ([],), "spaces_between_special_tokens": (True,),
    "echo": (False,), "suffix": ("",), "top_logprobs": (0,), "chat_template": (),
}  # fmt: skip
"""Fields of OpenAI and vLLM that this server, or one kind of its bodies, does not implement, with their neutral values (null is
always neutral)."""

REPLACED = {"functions": "tools", "function_call": "tool_choice"}

DEFAULT_COMPLETION_TOKENS = 16
"""The default of OpenAI's /v1/completions for max_tokens."""

Alternatives = Annotated[int, Meta(ge=0, le=limits.LOGPROBS_MAX)] | None
StopString = Annotated[str, Meta(min_length=1, max_length=limits.STOP_STRING_CHARACTERS_MAX)]


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(StructuredFields, kw_only=True, forbid_unknown_fields=True):
    """What both kinds of completion share. None: not given."""

    model: Annotated[str, Meta(min_length=1, max_length=limits.MODEL_CHARACTERS_MAX)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count = None
    temperature: Annotated[float, Meta(ge=limits.TEMPERATURE_MIN, le=limits.TEMPERATURE_MAX)] | None = None
    top_p: Annotated[float, Meta(gt=limits.TOP_P_MIN, le=limits.TOP_P_MAX)] | None = None
    top_k: Annotated[int, Meta(ge=min(limits.TOP_K_OFF), le=limits.TOP_K_MAX)] | None = None
    seed: Annotated[int, Meta(ge=limits.SEED_MIN, le=limits.SEED_MAX)] | None = None
    stop: StopString | Annotated[list[StopString], Meta(max_length=limits.STOP_STRINGS_MAX)] | None = None
    stop_token_ids: Annotated[list[int], Meta(max_length=limits.STOP_TOKEN_IDS_MAX)] | None = None
    ignore_eos: bool | None = None
    cache_salt: Annotated[str, Meta(max_length=limits.CACHE_SALT_CHARACTERS_MAX)] | None = None
    # Accepted without effect: they tell OpenAI about the caller or the bill, and do not change the answer.
    user: CallerText = None
    metadata: Metadata = None
    store: bool | None = None
    service_tier: CallerText = None
    safety_identifier: CallerText = None
    prompt_cache_key: CallerText = None
    prompt_cache_retention: CallerText = None
    reasoning_effort: CallerText = None
    verbosity: CallerText = None
    parallel_tool_calls: bool | None = None
    n: Annotated[int, Meta(ge=limits.N_MIN, le=limits.N_MAX)] | None = None
    best_of: Annotated[int, Meta(ge=limits.N_MIN, le=limits.N_MAX)] | None = None
    # Not implemented: see UNSUPPORTED.
    tools: Raw = NOT_GIVEN
    tool_choice: Raw = NOT_GIVEN
    functions: Raw = NOT_GIVEN
    function_call: Raw = NOT_GIVEN
    modalities: Raw = NOT_GIVEN
    audio: Raw = NOT_GIVEN
    prediction: Raw = NOT_GIVEN
    web_search_options: Raw = NOT_GIVEN
    use_beam_search: Raw = NOT_GIVEN
    length_penalty: Raw = NOT_GIVEN
    bad_words: Raw = NOT_GIVEN
    allowed_token_ids: Raw = NOT_GIVEN
    logits_processors: Raw = NOT_GIVEN
    spaces_between_special_tokens: Raw = NOT_GIVEN
    suffix: Raw = NOT_GIVEN

    prompt_field: ClassVar[str]
    served: ClassVar[tuple[str, ...]] = ()
    """of UNSUPPORTED: what this kind of body has"""

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def answers(self) -> int:
        """To each prompt."""
        return self.n or 1

    @property
    def most_tokens(self) -> int | None:
        """None: all that the model's length leaves."""
        raise NotImplementedError

    @property
    def alternatives(self) -> int | None:
        """How many each token's log probabilities list; None: none are shown."""
        raise NotImplementedError

    @property
    def prompt_alternatives(self) -> int | None:
        return self.prompt_logprobs

    @property
    def echoes(self) -> bool:
        """The answers begin with their prompt."""
        return False

    @property
    def collected(self) -> bool:
        """All of an answer is kept until its end."""
        return not self.stream

    @property
    def repeated(self) -> Mapping[str, Any]:
        """What an answer shows of its request."""
        return {}

    def check(self) -> None:
        """Checks that types cannot express. Raises InvalidRequest."""
        refused = [
            name
            for name in self.__struct_fields__
            if name in UNSUPPORTED
            and name not in self.served
            and isinstance(value := getattr(self, name), Raw)
            and value is not NOT_GIVEN
            and not is_neutral(value, UNSUPPORTED[name])
        ]
        if refused:
            raise _unsupported(refused)
        if self.best_of is not None and self.best_of != self.answers:
            raise InvalidRequest(
                f"best_of is {self.best_of}, and this server returns every answer that it makes: best_of must be equal to n "
                f"({self.answers}). Leave it out.",
                param="best_of",
            )
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only for requests with stream set to true.", param="stream_options"
            )
        if self.prompt_logprobs is not None and self.stream:
            raise InvalidRequest(
                "prompt_logprobs is only for requests without stream: a stream does not show the prompt.",
                param="prompt_logprobs",
            )


class ChatBody(GenerationBody, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1, max_length=limits.MESSAGES_MAX)]
    max_completion_tokens: Count = None
    logprobs: bool | None = None
    top_logprobs: Alternatives = None
    add_generation_prompt: bool | None = None
    echo: Raw = NOT_GIVEN
    reasoning_effort: Effort | None = None
    include_reasoning: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Raw = NOT_GIVEN
    documents: Raw = NOT_GIVEN
    chat_template: Raw = NOT_GIVEN

    prompt_field: ClassVar[str] = "messages"
    served: ClassVar[tuple[str, ...]] = ("tools", "tool_choice")

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def alternatives(self) -> int | None:
        return (self.top_logprobs or 0) if self.logprobs else None

    def check(self) -> None:
        super().check()
        if self.top_logprobs and not self.logprobs:
            raise InvalidRequest(
                "top_logprobs is only for requests with logprobs set to true.", param="top_logprobs"
            )


class CompletionBody(GenerationBody, kw_only=True):
    prompt: str | list[int | str | list[int]]
    max_tokens: Annotated[int, Meta(ge=0, le=limits.MAX_TOKENS_MAX)] | None = None
    logprobs: Alternatives = None
    echo: bool | None = None
    top_logprobs: Raw = NOT_GIVEN

    prompt_field: ClassVar[str] = "prompt"

    @property
    def most_tokens(self) -> int | None:
        """0: the engine still makes one, which is not shown."""
        return DEFAULT_COMPLETION_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def alternatives(self) -> int | None:
        return self.logprobs

    @property
    def prompt_alternatives(self) -> int | None:
        if not self.echoes or self.logprobs is None:
            return self.prompt_logprobs
        return max(self.logprobs, self.prompt_logprobs or 0)

    @property
    def echoes(self) -> bool:
        return bool(self.echo)

    def check(self) -> None:
        super().check()
        if self.max_tokens == 0 and not self.echo:
            raise InvalidRequest(
                f"max_tokens must be {FORMS['max_tokens']}; 0 is only for requests with echo set to true.",
                param="max_tokens",
            )

    def prompts(self) -> list[str] | list[list[int]]:
        """Each prompt, as text or token ids. Raises InvalidRequest for none or too many."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        kinds = set(map(type, self.prompt))
        if len(kinds) > 1:
            raise must_be("prompt")
        found: Any = [self.prompt] if kinds == {int} else self.prompt
        if not all(found) or not found:
            raise InvalidRequest(
                "prompt is empty, or one of its prompts is; send at least one token for each.", param="prompt"
            )
        most = limits.ANSWERS_MAX // self.answers
        if len(found) > most:
            raise InvalidRequest(
                f"prompt holds {len(found)} prompts; with n {self.answers} it takes at most {most}: prompts times n is "
                f"at most {limits.ANSWERS_MAX}.",
                param="prompt",
            )
        return found  # type: ignore[no-any-return]


def _unsupported(names: list[str]) -> InvalidRequest:
    if len(names) > 1:
        return InvalidRequest(
            f"{', '.join(names)} are not supported by this server: leave them out.", param=names[0]
        )
    if (instead := REPLACED.get(names[0])) is not None:
        return InvalidRequest(
            f"{names[0]} is not supported, OpenAI has replaced it: send {instead}.", param=names[0]
        )
    neutral = UNSUPPORTED[names[0]]
    instead = f" or set it to {msgspec.json.encode(neutral[0]).decode()}" if neutral else ""
    return InvalidRequest(
        f"{names[0]} is not supported by this server: leave it out{instead}.", param=names[0]
    )


T = TypeVar("T", bound=GenerationBody)

_decoders: dict[type[GenerationBody], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (ChatBody, CompletionBody)
}


def parse_body(kind: type[T], body: bytes | bytearray) -> T:
    """The body as `kind`. Raises InvalidRequest, which names the field.

    Fields of type Raw are views of `body`, so the result keeps the body in memory.
    """
    try:
        parsed: T = _decoders[kind].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise explain(error) from None
    parsed.check()
    return parsed
