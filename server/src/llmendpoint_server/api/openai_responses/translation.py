"""A body of the Responses API as the chat that it means, and what its answer repeats of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from msgspec import Raw

from llmendpoint_server import limits
from llmendpoint_server.api.decoding import BodyDecoder
from llmendpoint_server.api.explain import missing, must_be
from llmendpoint_server.api.fields import NOT_GIVEN, function_of_chat
from llmendpoint_server.api.messages import Message
from llmendpoint_server.api.openai_responses.bodies import (
    FORMS,
    ResponsesBody,
    ResponsesTool,
    TextFormat,
    ToolChoice,
)
from llmendpoint_server.api.openai_responses.input import to_messages
from llmendpoint_server.api.responses import encode_json
from llmendpoint_server.api.schemas import ChatBody, StreamOptions
from llmendpoint_server.errors import InvalidRequest, RequestError

_decoder = BodyDecoder(ResponsesBody, FORMS)
FORMATS = ("text", "json_object", "json_schema")
_IN_A_CHAT = (
    (re.compile(r"(tools\[\d+\])\.function\b"), r"\1"),
    (re.compile(r"\btool_choice\.allowed_tools\b"), "tool_choice"),
    (re.compile(r"\bresponse_format(\.json_schema)?\b"), "text.format"),
    (re.compile(r"\bmax_tokens\b"), "max_output_tokens"),
    (re.compile(r"^logprobs\b"), "top_logprobs"),
    (re.compile(r"^messages\b"), "input"),
    (re.compile(r", or stream\.$"), "."),  # which keeps all of an answer, too
)
"""How a chat names a field, and how the Responses API does."""


class ResponsesChat(ChatBody, kw_only=True):
    """`repeated`: what the answer repeats of the request."""

    repeated: Mapping[str, Any]

    prompt_field: ClassVar[str] = "input"

    @property
    def collected(self) -> bool:
        """Its last events have all of it."""
        return True


def parse_response_body(data: bytearray) -> ResponsesChat:
    """Raises InvalidRequest."""
    body = _decoder.decode(data)
    body.check()
    chat = _to_chat(body)
    chat.check()
    return chat


def renamed(error: RequestError) -> RequestError:
    """The error with the names that the caller's body has, instead of a chat's."""
    if error.message.startswith("Unknown parameter"):  # the caller's own name
        return error
    for pattern, name in _IN_A_CHAT:
        error.message = pattern.sub(name, error.message)
        error.param = error.param and pattern.sub(name, error.param)
    return error


def _to_chat(body: ResponsesBody) -> ResponsesChat:
    """Raises InvalidRequest, which names the field in the caller's body."""
    given = body.input
    messages = [Message("user", given)] if isinstance(given, str) else list(to_messages(given))
    if not messages:
        raise InvalidRequest(
            "input holds nothing that the model can read: send at least one message.", param="input"
        )
    if body.instructions:
        messages.insert(0, Message("system", body.instructions))
    tools = [_tool(tool, f"tools[{at}]") for at, tool in enumerate(body.tools or ())]
    options = body.stream_options
    return ResponsesChat(
        model=body.model,
        messages=messages,
        stream=body.stream,
        stream_options=StreamOptions(include_obfuscation=options.include_obfuscation) if options else None,
        max_tokens=body.max_output_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        logprobs=body.shows_logprobs or None,
        top_logprobs=body.top_logprobs,
        tools=_raw([{"type": "function", "function": tool} for tool in tools] or None),
        tool_choice=_choice(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls,
        response_format=_response_format(body),
        reasoning_effort=body.reasoning.effort if body.reasoning else None,
        repeated=_repeated(body, tools),
    )


def _raw(value: Any) -> Raw:
    return NOT_GIVEN if value is None else Raw(encode_json(value))


def _tool(tool: ResponsesTool, place: str) -> dict[str, Any]:
    if tool.type != "function":
        raise InvalidRequest(
            f"{place}.type is {tool.type[:64]!r}, and this server has no tools of its own: it must be 'function'.",
            param=f"{place}.type",
        )
    if tool.name is None:
        raise missing(f"{place}.name")
    return function_of_chat(tool.name, tool.parameters, tool.strict, tool.description)


def _choice(choice: str | ToolChoice | None) -> Raw:
    if choice is None or isinstance(choice, str):
        return _raw(choice)
    if choice.type == "allowed_tools":
        return _raw({"type": choice.type, "allowed_tools": _allowed(choice)})
    if choice.type != "function":
        raise must_be("tool_choice", FORMS)
    if choice.name is None:
        raise missing("tool_choice.name")
    return _raw({"type": "function", "function": {"name": choice.name}})


def _allowed(choice: ToolChoice) -> dict[str, Any]:
    for name in ("mode", "tools"):
        if getattr(choice, name) is None:
            raise missing(f"tool_choice.{name}")
    for at, tool in enumerate(choice.tools or ()):
        if tool.type != "function" or tool.name is None:
            place = f"tool_choice.tools[{at}]"
            raise InvalidRequest(f"{place} must be an object with type 'function' and name.", param=place)
    tools = [{"type": tool.type, "function": {"name": tool.name}} for tool in choice.tools or ()]
    return {"mode": choice.mode, "tools": tools}


def _response_format(body: ResponsesBody) -> Raw:
    form = body.text.format if body.text else None
    if form is None or form.type == "text":
        return NOT_GIVEN
    if form.type not in FORMATS:
        raise InvalidRequest(
            f"text.format.type is {form.type[:64]!r}; it must be 'text', 'json_object' or 'json_schema'.",
            param="text.format.type",
        )
    if form.type == "json_object":
        return _raw({"type": form.type})
    if form.schema is NOT_GIVEN:
        raise missing("text.format.schema")
    schema = {"name": form.name or "", "schema": form.schema, "strict": form.strict}
    return _raw({"type": form.type, "json_schema": schema})


def _repeated(body: ResponsesBody, tools: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """All that an answer repeats. What may be long is JSON already: the events of a stream have it three times."""
    reasoning, text = body.reasoning, body.text
    return {
        "background": False,
        "instructions": _bounded(body.instructions, None),
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": body.max_tool_calls,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {"effort": reasoning.effort if reasoning else None, "summary": None},
        "safety_identifier": body.safety_identifier,
        "service_tier": "default",
        "store": False,
        "temperature": body.temperature,
        "text": _raw({
            "format": _format(text.format if text else None),
            "verbosity": (text.verbosity if text else None) or "medium",
        }),
        "tool_choice": body.tool_choice or "auto",
        "tools": _bounded([{"type": "function", "description": None, **tool} for tool in tools], []),
        "top_logprobs": body.top_logprobs or 0,
        "top_p": body.top_p,
        "truncation": "disabled",
        "user": body.user,
    }  # fmt: skip


def _bounded(value: Any, instead: Any) -> Raw:
    """`instead`: of a value that is too long to be kept."""
    told = encode_json(value)
    return Raw(told if len(told) <= limits.REPEATED_BYTES_MAX else encode_json(instead))


def _format(form: TextFormat | None) -> dict[str, Any]:
    if form is None or form.type != "json_schema":
        return {"type": form.type if form else "text"}
    given = {name: getattr(form, name) for name in ("name", "description", "strict")}
    return {"type": form.type, "schema": form.schema, **given}
