"""Bodies of the OpenAI API: what is accepted, what is ignored, and what is refused by name."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from llmendpoint_server.errors import InvalidRequest

MAX_STOPS = 4
MAX_STOP_LENGTH = 256

UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "n": (1,), "best_of": (1,), "echo": (False,), "suffix": ("",), "logprobs": (False,), "top_logprobs": (0,),
    "frequency_penalty": (0,), "presence_penalty": (0,), "logit_bias": ({},), "tools": ([],), "tool_choice": ("none",),
    "functions": ([],), "function_call": ("none",), "response_format": ({"type": "text"},), "modalities": (["text"],),
    "audio": (), "prediction": (), "reasoning_effort": (), "verbosity": (), "web_search_options": (),
}  # fmt: skip
"""Fields of OpenAI's that this server does not implement, with the values that ask for nothing (null always does)."""


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)


class StreamOptions(Body):
    include_usage: bool = False
    include_obfuscation: bool = False


class TextPart(Body):
    type: Literal["text"]
    text: str


ANSWER_FIELDS = ("refusal", "annotations", "audio", "function_call", "tool_calls")
"""What OpenAI's answers carry beside their text: SDKs send it back, empty, when an answer becomes a chat's next message."""


class Message(Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @model_validator(mode="before")
    @classmethod
    def leave_out_what_an_answer_left_empty(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            name: value
            for name, value in values.items()
            if name not in ANSWER_FIELDS or value not in (None, [], "")
        }

    def for_template(self) -> dict[str, str]:
        """Plain text under the roles that templates know (`developer` is OpenAI's newer word for `system`)."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        role = "system" if self.role == "developer" else self.role
        return {"role": role, "content": text} | ({"name": self.name} if self.name else {})


Count = Annotated[int, Field(ge=1)]


class GenerationBody(Body):
    """What both kinds of completion share. None: not given."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    cache_salt: str | None = None
    # Accepted and of no effect: they tell OpenAI about the caller or the bill, not about the answer.
    user: str | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    parallel_tool_calls: bool | None = None

    prompt_field: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def refuse_what_is_not_implemented(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for name in UNSUPPORTED.keys() & values.keys():
            neutral = UNSUPPORTED[name]
            if values[name] is not None and values[name] not in neutral:
                instead = f" or set it to {neutral[0]!r}" if neutral else ""
                raise InvalidRequest(
                    f"{name} is not supported by this server: leave it out{instead}.", param=name
                )
        return {name: value for name, value in values.items() if name not in UNSUPPORTED}

    @property
    def stops(self) -> list[str]:
        return [self.stop] if isinstance(self.stop, str) else list(self.stop or ())

    @property
    def include_usage(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage

    def check(self) -> None:
        """What types alone do not say. Raises InvalidRequest."""
        if len(self.stops) > MAX_STOPS or any(not 0 < len(stop) <= MAX_STOP_LENGTH for stop in self.stops):
            raise InvalidRequest(
                f"stop takes at most {MAX_STOPS} strings of 1 to {MAX_STOP_LENGTH} characters.", param="stop"
            )
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only for requests with stream set to true.", param="stream_options"
            )


class ChatBody(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Count | None = None

    prompt_field: ClassVar[str] = "messages"


class CompletionBody(GenerationBody):
    prompt: str | list[str] | list[int] | list[list[int]]

    prompt_field: ClassVar[str] = "prompt"

    def single_prompt(self) -> str | list[int]:
        """The one prompt, as text or token ids. Raises InvalidRequest for none or several."""
        if isinstance(self.prompt, str):
            return self.prompt
        items: list[Any] = list(self.prompt)
        if items and all(isinstance(item, int) for item in items):
            return items
        if len(items) != 1 or not items[0]:
            raise InvalidRequest(
                f"prompt holds {len(items)} prompts; send exactly one, as a string or a list of token ids.",
                param="prompt",
            )
        single: str | list[int] = items[0]
        return single


T = TypeVar("T", bound=GenerationBody)


def parse_body(kind: type[T], body: bytes) -> T:
    """The body as `kind`. Raises InvalidRequest that names the field."""
    try:
        parsed = kind.model_validate_json(body)
    except ValidationError as error:
        raise _explain(error) from None
    parsed.check()
    return parsed


def _explain(error: ValidationError) -> InvalidRequest:
    # The deepest: where a field may be of several types, that is about the type that came closest.
    first = max(error.errors(include_url=False, include_input=False), key=lambda item: len(item["loc"]))
    # Union members appear in the location as type names; a caller knows only fields and positions.
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}"
        for part in first["loc"]
        if isinstance(part, int) or (not any(mark in part for mark in "[]") and part not in ("str", "int"))
    ).lstrip(".")
    match first["type"]:
        case "json_invalid":
            reason = str(first.get("ctx", {}).get("error", ""))
            return InvalidRequest(f"The request's body is not valid JSON: {reason}.")
        case "extra_forbidden":
            return InvalidRequest(f"Unknown parameter: {place}. Leave it out.", param=place)
        case "missing":
            return InvalidRequest(f"Missing parameter: {place}.", param=place)
        case _ if not place:
            return InvalidRequest("The request's body must be a JSON object.")
        case _:
            return InvalidRequest(f"{place}: {first['msg']}.", param=place)
