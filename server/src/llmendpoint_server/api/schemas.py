"""Bodies of the OpenAI API: what is accepted, what is ignored, and what is refused by name.

msgspec decodes them: it stops at the first error and builds nothing that the types do not name. Null means: not given.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from llmendpoint_server import limits
from llmendpoint_server.api.explain import explain, missing, must_be
from llmendpoint_server.api.structured import StructuredFields
from llmendpoint_server.errors import InvalidRequest

NOT_GIVEN = Raw(b"null")

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (False,), "top_logprobs": (0,),
    "tools": ([],), "tool_choice": ("none",),
    "functions": ([],), "function_call": ("none",), "modalities": (["text"],),
    "audio": (), "prediction": (), "reasoning_effort": (), "verbosity": (), "web_search_options": (),
}  # fmt: skip
"""OpenAI's fields that this server does not implement, with their neutral values (null is always neutral)."""
LONGEST_NEUTRAL = 64
"""Bytes. A longer value of a field above is not neutral; it is refused without being decoded."""
TOOL_ROLES = ("tool", "function")
ROLES = ("system", "developer", "user", "assistant")

CallerText = Annotated[str, Meta(max_length=limits.CALLER_CHARACTERS_MAX)] | None
Count = Annotated[int, Meta(ge=limits.MAX_TOKENS_MIN, le=limits.MAX_TOKENS_MAX)] | None
StopString = Annotated[str, Meta(min_length=1, max_length=limits.STOP_STRING_CHARACTERS_MAX)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    pass


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Part(Body):
    type: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]
    text: str | UnsetType = UNSET
    # Declared so that their refusal says what is not supported.
    image_url: Raw = NOT_GIVEN
    input_audio: Raw = NOT_GIVEN
    file: Raw = NOT_GIVEN
    refusal: Raw = NOT_GIVEN


ANSWER_FIELDS = ("refusal", "annotations", "audio", "function_call", "tool_calls")
"""What OpenAI's answers carry beside their text. SDKs send it back, empty, when an answer becomes a chat's next
message."""


class Message(Body):
    role: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]
    content: str | Annotated[list[Part], Meta(max_length=limits.PARTS_MAX)] | UnsetType | None = UNSET
    name: Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)] | None = None
    refusal: Raw = NOT_GIVEN
    annotations: Raw = NOT_GIVEN
    audio: Raw = NOT_GIVEN
    function_call: Raw = NOT_GIVEN
    tool_calls: Raw = NOT_GIVEN
    tool_call_id: Raw = NOT_GIVEN

    def for_template(self, place: str) -> dict[str, str]:
        """Plain text under the roles that templates know (`developer` is OpenAI's newer name for `system`).

        `place`: where the message is, for the errors. Raises InvalidRequest.
        """
        self._check(place)
        if isinstance(self.content, str):
            text = self.content
        elif isinstance(self.content, list):
            text = "".join([_text_of(part, f"{place}.content[{at}]") for at, part in enumerate(self.content)])
        elif self.content is UNSET:
            raise missing(f"{place}.content")
        else:
            raise must_be(f"{place}.content")
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text} | ({"name": self.name} if self.name else {})

    def _check(self, place: str) -> None:
        if self.role in TOOL_ROLES:
            raise InvalidRequest(
                f"{place}.role is {self.role!r}, and this server does not support tools: neither tool calls nor their "
                f"results. The roles are {', '.join(ROLES)}.",
                param=f"{place}.role",
            )
        if self.role not in ROLES:
            raise must_be(f"{place}.role")
        for field in ANSWER_FIELDS:
            value = getattr(self, field)
            if value is not NOT_GIVEN and not _is_neutral(value, ([], "")):
                what = (
                    "this server does not support tools"
                    if "call" in field
                    else "this server takes text alone"
                )
                raise InvalidRequest(
                    f"{place}.{field} is not supported: {what}. Leave it out.", param=f"{place}.{field}"
                )
        if self.tool_call_id is not NOT_GIVEN:
            raise InvalidRequest(
                f"{place}.tool_call_id is not supported: this server does not support tools. Leave it out.",
                param=f"{place}.tool_call_id",
            )


def _text_of(part: Part, place: str) -> str:
    if part.type != "text":
        raise InvalidRequest(
            f"{place}.type is {part.type[:64]!r}, and this server takes text alone: the type must be 'text'.",
            param=f"{place}.type",
        )
    if isinstance(part.text, str):
        return part.text
    raise missing(f"{place}.text")


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
    metadata: Annotated[
        dict[
            Annotated[str, Meta(max_length=limits.METADATA_KEY_MAX)],
            Annotated[str, Meta(max_length=limits.METADATA_VALUE_MAX)],
        ],
        Meta(max_length=limits.METADATA_PAIRS_MAX),
    ] | None = None  # fmt: skip
    store: bool | None = None
    service_tier: CallerText = None
    safety_identifier: CallerText = None
    prompt_cache_key: CallerText = None
    prompt_cache_retention: CallerText = None
    parallel_tool_calls: bool | None = None
    # Not implemented: see UNSUPPORTED.
    n: Raw = NOT_GIVEN
    best_of: Raw = NOT_GIVEN
    echo: Raw = NOT_GIVEN
    suffix: Raw = NOT_GIVEN
    logprobs: Raw = NOT_GIVEN
    top_logprobs: Raw = NOT_GIVEN
    tools: Raw = NOT_GIVEN
    tool_choice: Raw = NOT_GIVEN
    functions: Raw = NOT_GIVEN
    function_call: Raw = NOT_GIVEN
    modalities: Raw = NOT_GIVEN
    audio: Raw = NOT_GIVEN
    prediction: Raw = NOT_GIVEN
    reasoning_effort: Raw = NOT_GIVEN
    verbosity: Raw = NOT_GIVEN
    web_search_options: Raw = NOT_GIVEN

    prompt_field: ClassVar[str]

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    @property
    def most_tokens(self) -> int | None:
        return self.max_tokens

    def check(self) -> None:
        """Checks that types cannot express. Raises InvalidRequest."""
        refused = [
            name
            for name, neutral in UNSUPPORTED.items()
            if (value := getattr(self, name)) is not NOT_GIVEN and not _is_neutral(value, neutral)
        ]
        if refused:
            raise _unsupported(refused)
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only for requests with stream set to true.", param="stream_options"
            )


class ChatBody(GenerationBody, kw_only=True):
    messages: Annotated[list[Message], Meta(min_length=1, max_length=limits.MESSAGES_MAX)]
    max_completion_tokens: Count = None

    prompt_field: ClassVar[str] = "messages"

    @property
    def most_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(GenerationBody, kw_only=True):
    prompt: str | list[int | str | list[int]]

    prompt_field: ClassVar[str] = "prompt"

    def single_prompt(self) -> str | list[int]:
        """The one prompt, as text or token ids. Raises InvalidRequest for none or several."""
        if isinstance(self.prompt, str):
            return self.prompt
        items = self.prompt
        kinds = set(map(type, items))
        if kinds == {int}:
            return items  # type: ignore[return-value]  # all of them are ids
        if len(kinds) > 1:
            raise must_be("prompt")
        only = items[0] if len(items) == 1 else None
        if not only or isinstance(only, int):
            raise InvalidRequest(
                f"prompt holds {len(items)} prompts; send exactly one, as a string or a list of token ids.",
                param="prompt",
            )
        return only


def _is_neutral(value: Raw, neutrals: tuple[Any, ...]) -> bool:
    """Whether an unsupported field's value is neutral. 0 and false differ."""
    data = bytes(value)
    if len(data) > LONGEST_NEUTRAL:
        return False
    given = msgspec.json.decode(data)
    return given is None or any(
        given == neutral and isinstance(given, bool) == isinstance(neutral, bool) for neutral in neutrals
    )


def _unsupported(names: list[str]) -> InvalidRequest:
    if len(names) > 1:
        return InvalidRequest(
            f"{', '.join(names)} are not supported by this server: leave them out.", param=names[0]
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
