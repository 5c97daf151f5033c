"""The body of OpenAI's Responses API: what is accepted in it. Null means: not given.

Items and parts take fields that are not named here without effect: an answer's items go back as they came.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from llmendpoint_server import limits
from llmendpoint_server.api.chat_fields import Effort
from llmendpoint_server.api.explain import FORMS as CHAT_FORMS
from llmendpoint_server.api.fields import NOT_GIVEN, Body, CallerText, Count, Metadata, is_neutral
from llmendpoint_server.errors import InvalidRequest

TEXT_LOGPROBS = "message.output_text.logprobs"
INCLUDED = (
    TEXT_LOGPROBS, "reasoning.encrypted_content", "code_interpreter_call.outputs", "computer_call_output.output.image_url",
    "file_search_call.results", "message.input_image.image_url", "web_search_call.action.sources", "web_search_call.results",
)  # fmt: skip
"""What `include` may name. All but the first are parts of answers that this server does not make."""
VERBOSITIES = ("low", "medium", "high")
_CALLER = CHAT_FORMS["user"]
_FLAG = "true or false"
_TEXT = f"a string, or a list of at most {limits.PARTS_MAX} parts of type 'input_text'"
FORMS: dict[str, str] = {
    **{name: CHAT_FORMS[name] for name in (
        "model", "stream", "temperature", "top_p", "top_logprobs", "parallel_tool_calls", "metadata", "store", "user",
        "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    )},
    "input": f"a string, or a list of at least 1 and at most {limits.MESSAGES_MAX} items",
    "input[]": "an item: an object with type 'message', 'function_call', 'function_call_output' or 'reasoning'",
    "input[].role": "'system', 'developer', 'user' or 'assistant'",
    "input[].content": f"a string, or a list of at most {limits.PARTS_MAX} parts of type 'input_text' (of an assistant: "
    "'output_text')",
    "input[].content[]": "a part: an object with type 'input_text' and text",
    "input[].content[].text": "a string",
    "input[].output": _TEXT,
    "input[].output[]": "a part: an object with type 'input_text' and text",
    "input[].arguments": "a string that holds a JSON object",
    "input[].call_id": f"the id of a call, a string of at most {limits.NAME_CHARACTERS_MAX} characters",
    "input[].name": f"a function's name, a string of at most {limits.NAME_CHARACTERS_MAX} characters",
    "instructions": "a string",
    "max_output_tokens": CHAT_FORMS["max_tokens"],
    "max_tool_calls": CHAT_FORMS["max_tokens"],
    "tools": f"a list of at most {limits.TOOLS_MAX} objects with type 'function', name, description and parameters (a JSON "
    "schema)",
    "tools[].name": "a string",
    "tool_choice": "'none', 'auto', 'required', an object with type 'function' and the name of one in tools, or one with "
    "type 'allowed_tools', mode ('auto' or 'required') and tools",
    "text": "an object with format and verbosity",
    "text.format": "an object with type: 'text', 'json_object' or 'json_schema', and with the last one name and schema",
    "text.verbosity": "'low', 'medium' or 'high'",
    "reasoning": "an object with effort",
    "reasoning.effort": CHAT_FORMS["reasoning_effort"],
    "reasoning.summary": _CALLER,
    "reasoning.generate_summary": _CALLER,
    "include": f"a list of at most {len(INCLUDED)} of: {', '.join(INCLUDED)}",
    "truncation": "'disabled'",
    "background": _FLAG,
    "stream_options": "an object with include_obfuscation",
    "stream_options.include_obfuscation": _FLAG,
}  # fmt: skip
Name = Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]


class InputPart(Struct):
    """One of several kinds, by `type`."""

    type: Name
    text: str | None = None
    refusal: str | None = None


Parts = Annotated[list[InputPart], Meta(max_length=limits.PARTS_MAX)]


class InputItem(Struct):
    """One of several kinds, by `type`; what its kind needs is checked where it is used. Without `type`: a message."""

    type: Name | None = None
    role: Name | None = None
    content: str | Parts | None = None
    status: Name | None = None
    id: Name | None = None
    call_id: Name | None = None
    name: Name | None = None
    arguments: str | None = None
    output: str | Parts | None = None


class ResponsesTool(Struct):
    """Without `strict` a function is not strict."""

    type: Name
    name: str | None = None
    description: str | None = None
    parameters: Raw = NOT_GIVEN
    strict: bool | None = None


class NamedTool(Struct):
    type: Name
    name: str | None = None


class ToolChoice(NamedTool, omit_defaults=True):
    """With type 'function' a name; with type 'allowed_tools' mode and tools."""

    mode: Name | None = None
    tools: Annotated[list[NamedTool], Meta(max_length=limits.TOOLS_MAX)] | None = None


class TextFormat(Body):
    type: Name
    name: Name | None = None
    schema: Raw = NOT_GIVEN
    strict: bool | None = None
    description: str | None = None


class TextOptions(Body):
    """`verbosity` has no effect."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Body):
    """`summary` has no effect: answers show the reasoning itself. `context` and `mode`: see UNSUPPORTED."""

    effort: Effort | None = None
    summary: CallerText = None
    generate_summary: CallerText = None
    context: Raw = NOT_GIVEN
    mode: Raw = NOT_GIVEN


class ResponsesStreamOptions(Body):
    include_obfuscation: bool | None = None


UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "previous_response_id": (), "conversation": (), "background": (False,), "prompt": (), "context_management": ([],),
    "moderation": (), "access_programs": (), "image": (), "truncation": ("disabled",),
}  # fmt: skip
"""Fields that need a store, or OpenAI's own service, with their neutral values. Null is the same as left out."""
_STORED = "it stores nothing. The batch service of the chart (batch.enabled) serves it, at the gateway's address; here "
WHY = {
    "previous_response_id": f"{_STORED}send the whole conversation in input",
    "conversation": f"{_STORED}send the whole conversation in input",
    "background": f"{_STORED}leave it out",
    "prompt": "it stores no prompts. Send instructions and input",
    "truncation": "it leaves nothing out of an input. Send a shorter one",
}


class ResponsesBody(Body, kw_only=True):
    model: Annotated[str, Meta(min_length=1, max_length=limits.MODEL_CHARACTERS_MAX)]
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=limits.MESSAGES_MAX)]
    instructions: str | None = None
    stream: bool | None = None
    stream_options: ResponsesStreamOptions | None = None
    max_output_tokens: Count = None
    temperature: Annotated[float, Meta(ge=limits.TEMPERATURE_MIN, le=limits.TEMPERATURE_MAX)] | None = None
    top_p: Annotated[float, Meta(gt=limits.TOP_P_MIN, le=limits.TOP_P_MAX)] | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=limits.LOGPROBS_MAX)] | None = None
    include: Annotated[list[Name], Meta(max_length=len(INCLUDED))] | None = None
    tools: Annotated[list[ResponsesTool], Meta(max_length=limits.TOOLS_MAX)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    # Accepted without effect. `max_tool_calls` counts calls of OpenAI's own tools.
    store: bool | None = None
    max_tool_calls: Count = None
    user: CallerText = None
    metadata: Metadata = None
    service_tier: CallerText = None
    safety_identifier: CallerText = None
    prompt_cache_key: CallerText = None
    prompt_cache_retention: CallerText = None
    prompt_cache_options: Raw = NOT_GIVEN
    # Not implemented: see UNSUPPORTED.
    previous_response_id: Raw = NOT_GIVEN
    conversation: Raw = NOT_GIVEN
    background: Raw = NOT_GIVEN
    prompt: Raw = NOT_GIVEN
    context_management: Raw = NOT_GIVEN
    moderation: Raw = NOT_GIVEN
    access_programs: Raw = NOT_GIVEN
    image: Raw = NOT_GIVEN
    truncation: Raw = NOT_GIVEN

    def check(self) -> None:
        """Raises InvalidRequest."""
        for name, neutral in UNSUPPORTED.items():
            _refuse_unless_neutral(name, getattr(self, name), neutral)
        if self.reasoning is not None:
            _refuse_unless_neutral("reasoning.context", self.reasoning.context, ("auto",))
            _refuse_unless_neutral("reasoning.mode", self.reasoning.mode, ("standard",))
        for at, name in enumerate(self.include or ()):
            if name not in INCLUDED:
                raise InvalidRequest(
                    f"include[{at}] must be one of: {', '.join(INCLUDED)}.", param=f"include[{at}]"
                )
        if self.top_logprobs and not self.shows_logprobs:
            raise InvalidRequest(
                f"top_logprobs is only for requests whose include has {TEXT_LOGPROBS!r}.",
                param="top_logprobs",
            )
        if self.stream_options is not None and not self.stream:
            raise InvalidRequest(
                "stream_options is only for requests with stream set to true.", param="stream_options"
            )

    @property
    def shows_logprobs(self) -> bool:
        return TEXT_LOGPROBS in (self.include or ())


def _refuse_unless_neutral(name: str, value: Raw, neutral: tuple[Any, ...]) -> None:
    if not is_neutral(value, neutral):
        why = WHY.get(name, "leave it out")
        raise InvalidRequest(f"{name} is not supported by this server: {why}.", param=name)
