"""Tools for a model whose chat template knows none: they are described in the system message, in the form of Hermes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmendpoint_server.api.chat_options import Messages, joined

ABOUT = """You may call functions. These are the functions, each as a line of JSON:
<tools>
{tools}
</tools>
To call one, write its name and its arguments as JSON between these tags, and nothing after the last call:
<tool_call>
{{"name": "...", "arguments": {{...}}}}
</tool_call>
You then get the results between <tool_response> tags."""


def with_tools_as_text(
    messages: Messages, tools: Sequence[Mapping[str, Any]] | None, *, system: bool
) -> list[dict[str, Any]]:
    """`system`: the template takes a system message; otherwise the user's first one has the description."""
    told = _merge_results([_as_text(message) for message in messages])
    if not tools:
        return told
    about = ABOUT.format(tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools))
    if told and told[0]["role"] == "system":
        return [told[0] | {"content": _text(told[0]) + "\n\n" + about}, *told[1:]]
    if system:
        return [{"role": "system", "content": about}, *told]
    first = next((at for at, message in enumerate(told) if message["role"] == "user"), None)
    if first is None:
        return [{"role": "user", "content": about}, *told]
    told[first] = told[first] | {"content": about + "\n\n" + _text(told[first])}
    return told


def _text(message: Mapping[str, Any]) -> str:
    return joined(message.get("content") or "")


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "tool", "content": f"<tool_response>\n{_text(message)}\n</tool_response>"}
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    texts = [_text(message)] if _text(message) else []
    for call in calls:
        said = json.dumps(
            {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}, ensure_ascii=False
        )
        texts.append(f"<tool_call>\n{said}\n</tool_call>")
    rest = {name: value for name, value in message.items() if name != "tool_calls"}
    return rest | {"content": "\n".join(texts)}


def _merge_results(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results of calls become the user's, those in a row one message: templates want roles in turn."""
    told: list[dict[str, Any]] = []
    in_results = False
    for message in messages:
        is_result = message["role"] == "tool"
        if is_result and in_results:
            told[-1]["content"] += "\n" + message["content"]
        else:
            told.append({"role": "user", "content": message["content"]} if is_result else message)
        in_results = is_result
    return told
