"""A body of Anthropic's API as the chat that it means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from llmendpoint_server.api.anthropic.bodies import (
    FORMS,
    AnthropicTool,
    Block,
    Content,
    CountBody,
    MessagesBody,
)
from llmendpoint_server.api.decoding import BodyDecoder
from llmendpoint_server.api.explain import missing, must_be
from llmendpoint_server.api.fields import NOT_GIVEN, function_of_chat
from llmendpoint_server.api.messages import CalledFunction, MadeCall, Message, Part
from llmendpoint_server.api.responses import encode_json
from llmendpoint_server.api.schemas import ChatBody
from llmendpoint_server.errors import InvalidRequest

_decoders = {kind: BodyDecoder(kind, FORMS) for kind in (CountBody, MessagesBody)}
CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def parse_chat(kind: type[CountBody], data: bytearray) -> ChatBody:
    """The body of one of Anthropic's routes. Raises InvalidRequest."""
    body = _decoders[kind].decode(data)
    body.check()
    chat = to_chat(body)
    chat.check()
    return chat


def to_chat(body: CountBody) -> ChatBody:
    """Raises InvalidRequest, which names the field in the caller's body."""
    messages = [message for at, _ in enumerate(body.messages) for message in _messages(body, at)]
    if body.system:
        messages.insert(0, Message("system", _text_parts(body.system, "system")))
    # Anthropic's API goes on from an answer that the last message has begun.
    continues = body.messages[-1].role == "assistant" and not messages[-1].tool_calls
    chat = ChatBody(
        model=body.model,
        messages=messages,
        tools=_tools(body.tools),
        tool_choice=_choice(body),
        parallel_tool_calls=not body.tool_choice.disable_parallel_tool_use if body.tool_choice else None,
        continue_final_message=continues or None,
        add_generation_prompt=False if continues else None,
        chat_template_kwargs=_template_variables(body),
        response_format=_response_format(body),
        reasoning_effort=body.output_config.effort if body.output_config else None,
        include_reasoning=False if _thinking_off(body) else None,
    )
    if isinstance(body, MessagesBody):
        chat.max_tokens, chat.stop, chat.stream = body.max_tokens, body.stop_sequences, body.stream
        chat.temperature, chat.top_p, chat.top_k = body.temperature, body.top_p, body.top_k
    return chat


def _thinking_off(body: CountBody) -> bool:
    return body.thinking is not None and body.thinking.type == "disabled"


def _template_variables(body: CountBody) -> Raw:
    """Templates of models that think name this variable so. Without `thinking` the template decides."""
    if body.thinking is None:
        return NOT_GIVEN
    return Raw(encode_json({"enable_thinking": not _thinking_off(body)}))


def _response_format(body: CountBody) -> Raw:
    form = body.output_config.format if body.output_config else None
    if form is None:
        return NOT_GIVEN
    schema = {"name": "answer", "schema": form.schema, "strict": True}
    return Raw(encode_json({"type": "json_schema", "json_schema": schema}))


def _messages(body: CountBody, at: int) -> Iterator[Message]:
    """One of Anthropic's messages: results of tools are messages of their own in a chat."""
    message, place = body.messages[at], f"messages[{at}]"
    if message.role not in ("user", "assistant"):
        raise must_be(f"{place}.role", FORMS)
    if isinstance(message.content, str):
        yield Message(message.role, message.content)
    elif message.role == "assistant":
        yield _assistant(message.content, place)
    else:
        yield from _user(message.content, place)


def _user(blocks: Sequence[Block], place: str) -> Iterator[Message]:
    parts: list[Part] = []
    for at, block in enumerate(blocks):
        where = f"{place}.content[{at}]"
        if block.type != "tool_result":
            parts.append(_text_part(block, where))
            continue
        if parts:
            yield Message("user", parts)
            parts = []
        if block.tool_use_id is None:
            raise missing(f"{where}.tool_use_id")
        content = _text_parts(block.content, f"{where}.content") if block.content is not None else ""
        yield Message("tool", content, tool_call_id=block.tool_use_id)
    if parts or not blocks:
        yield Message("user", parts)


def _assistant(blocks: Sequence[Block], place: str) -> Message:
    parts: list[Part] = []
    calls: list[MadeCall] = []
    thoughts: list[str] = []
    for at, block in enumerate(blocks):
        where = f"{place}.content[{at}]"
        if block.type == "tool_use":
            calls.append(_call(block, where))
        elif block.type == "thinking":
            thoughts.append(block.thinking or "")
        elif block.type != "redacted_thinking":  # which nobody can read
            parts.append(_text_part(block, where))
    content = "".join(str(part.text) for part in parts)
    return Message(
        "assistant", content, tool_calls=calls or None, reasoning_content="".join(thoughts) or None
    )


def _call(block: Block, place: str) -> MadeCall:
    for field in ("id", "name"):
        if getattr(block, field) is None:
            raise missing(f"{place}.{field}")
    arguments = "{}" if block.input is NOT_GIVEN else bytes(block.input).decode()
    if not arguments.lstrip().startswith("{"):
        raise InvalidRequest(f"{place}.input must be an object.", param=f"{place}.input")
    return MadeCall(CalledFunction(block.name or "", arguments), block.id)


def _text_parts(content: Content, place: str) -> str | list[Part]:
    if isinstance(content, str):
        return content
    return [_text_part(block, f"{place}[{at}]") for at, block in enumerate(content)]


def _text_part(block: Block, place: str) -> Part:
    if block.type != "text":
        raise InvalidRequest(
            f"{place}.type is {block.type[:64]!r}, and this server takes text alone: send blocks of type 'text'; 'tool_use' "
            "and 'thinking' are for the assistant's messages, 'tool_result' for the user's.",
            param=f"{place}.type",
        )
    if block.text is None:
        raise missing(f"{place}.text")
    return Part("text", block.text)


def _tools(tools: Iterable[AnthropicTool] | None) -> Raw:
    if not tools:
        return NOT_GIVEN
    return Raw(encode_json([_tool(tool, f"tools[{at}]") for at, tool in enumerate(tools)]))


def _tool(tool: AnthropicTool, place: str) -> dict[str, Any]:
    if tool.type not in (None, "custom"):
        raise InvalidRequest(
            f"{place}.type is {tool.type!r}, and this server has no tools of its own: leave it out.",
            param=f"{place}.type",
        )
    if tool.input_schema is NOT_GIVEN:
        raise missing(f"{place}.input_schema")
    function = function_of_chat(tool.name, tool.input_schema, tool.strict, tool.description)
    return {"type": "function", "function": function}


def _choice(body: CountBody) -> Raw:
    choice = body.tool_choice
    if choice is None:
        return NOT_GIVEN
    if choice.type != "tool":
        return Raw(msgspec.json.encode(CHOICES[choice.type]))
    if choice.name is None:
        raise missing("tool_choice.name")
    return Raw(encode_json({"type": "function", "function": {"name": choice.name}}))
