"""Bodies of Anthropic's API: what is accepted in them. Null means: not given.

Content blocks take fields that are not named here without effect, such as `cache_control` and `citations`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

from llmendpoint_server import limits
from llmendpoint_server.api.explain import FORMS as CHAT_FORMS
from llmendpoint_server.api.fields import NOT_GIVEN, Body, is_neutral
from llmendpoint_server.errors import InvalidRequest

_TEXT = f"a string, or a list of at most {limits.PARTS_MAX} blocks"
FORMS: dict[str, str] = {
    **{name: CHAT_FORMS[name] for name in ("model", "stream", "max_tokens", "temperature", "top_p")},
    "messages": f"a list of at least 1 and at most {limits.MESSAGES_MAX} messages",
    "messages[]": "an object with role and content",
    "messages[].role": "'user' or 'assistant'",
    "messages[].content": _TEXT,
    "messages[].content[]": "a block: an object with type",
    "messages[].content[].text": "a string",
    "messages[].content[].content": _TEXT,
    "system": f"{_TEXT} of type 'text'",
    "system[]": "an object with type 'text' and text",
    "top_k": f"a whole number from 0 to {limits.TOP_K_MAX}",
    "stop_sequences": f"a list of at most {limits.STOP_STRINGS_MAX} strings, of 1 to {limits.STOP_STRING_CHARACTERS_MAX} "
    "characters each",
    "tools": f"a list of at most {limits.TOOLS_MAX} tools",
    "tools[]": "an object with name, description and input_schema",
    "tools[].input_schema": "a JSON schema, an object",
    "tool_choice": "an object with type: 'auto', 'any', 'none', or 'tool' with a name",
    "thinking": "an object with type: 'enabled', 'disabled' or 'adaptive'",
    "output_config": "an object with format (type 'json_schema' and schema) and effort",
    "output_config.effort": "'low', 'medium', 'high', 'xhigh' or 'max'",
    "metadata": "an object with user_id",
    "service_tier": "a string",
}
Name = Annotated[str, Meta(max_length=limits.NAME_CHARACTERS_MAX)]
Caller = Annotated[str, Meta(max_length=limits.CALLER_CHARACTERS_MAX)] | None


class Block(Struct):
    """One of several kinds, by `type`; what its kind needs is checked where it is used."""

    type: Name
    text: str | None = None
    thinking: str | None = None
    id: Name | None = None
    name: Name | None = None
    input: Raw = NOT_GIVEN
    tool_use_id: Name | None = None
    content: str | Annotated[list[Block], Meta(max_length=limits.PARTS_MAX)] | None = None
    is_error: bool | None = None


Content = str | Annotated[list[Block], Meta(max_length=limits.PARTS_MAX)]


class AnthropicMessage(Struct):
    role: Name
    content: Content


class AnthropicTool(Struct):
    name: Name
    input_schema: Raw = NOT_GIVEN
    description: str | None = None
    type: Name | None = None
    strict: bool | None = None


class ToolChoice(Body):
    type: Literal["auto", "any", "tool", "none"]
    name: Name | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Body):
    """`budget_tokens` has no effect: a model thinks as long as it does."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=1, le=limits.MAX_TOKENS_MAX)] | None = None
    display: Name | None = None


class Metadata(Body):
    user_id: Caller = None


class OutputFormat(Body):
    type: Literal["json_schema"]
    schema: Raw


class OutputConfig(Body):
    format: OutputFormat | None = None
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


UNSUPPORTED = (
    "billing_policy", "compaction", "container", "context_management", "diagnostics", "fallback_credit_token", "fallbacks",
    "inference_geo", "mcp_servers", "speed", "thread", "user_profile_id", "workspace_id",
)  # fmt: skip
"""Fields of Anthropic's own service. Null is the same as left out."""
WHY = {
    "thread": "this server keeps no conversation, so send all of its messages (with the SDK's tool runner: thread=False)",
    "container": "this server runs no code",
    "mcp_servers": "this server has no tools of its own",
}


class CountBody(Body, kw_only=True):
    """What both routes share: all that makes the prompt."""

    model: Annotated[str, Meta(min_length=1, max_length=limits.MODEL_CHARACTERS_MAX)]
    messages: Annotated[list[AnthropicMessage], Meta(min_length=1, max_length=limits.MESSAGES_MAX)]
    system: Content | None = None
    tools: Annotated[list[AnthropicTool], Meta(max_length=limits.TOOLS_MAX)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Any = None
    # Not implemented: see UNSUPPORTED.
    billing_policy: Raw = NOT_GIVEN
    compaction: Raw = NOT_GIVEN
    container: Raw = NOT_GIVEN
    context_management: Raw = NOT_GIVEN
    diagnostics: Raw = NOT_GIVEN
    fallback_credit_token: Raw = NOT_GIVEN
    fallbacks: Raw = NOT_GIVEN
    inference_geo: Raw = NOT_GIVEN
    mcp_servers: Raw = NOT_GIVEN
    speed: Raw = NOT_GIVEN
    thread: Raw = NOT_GIVEN
    user_profile_id: Raw = NOT_GIVEN
    workspace_id: Raw = NOT_GIVEN

    def check(self) -> None:
        """Raises InvalidRequest."""
        for name in UNSUPPORTED:
            if not is_neutral(getattr(self, name), ([],)):
                why = f": {WHY[name]}" if name in WHY else ""
                raise InvalidRequest(
                    f"{name} is not supported by this server{why}. Leave it out.", param=name
                )


class MessagesBody(CountBody, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=limits.MAX_TOKENS_MIN, le=limits.MAX_TOKENS_MAX)]
    stop_sequences: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=limits.STOP_STRING_CHARACTERS_MAX)]],
        Meta(max_length=limits.STOP_STRINGS_MAX),
    ] | None = None  # fmt: skip
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=limits.TEMPERATURE_MIN, le=limits.TEMPERATURE_MAX)] | None = None
    top_p: Annotated[float, Meta(gt=limits.TOP_P_MIN, le=limits.TOP_P_MAX)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=limits.TOP_K_MAX)] | None = None
    metadata: Metadata | None = None
    service_tier: Caller = None
