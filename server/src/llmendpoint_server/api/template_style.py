"""How a chat template wants its messages, found by trying it: templates agree on little but role and content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jinja2 import nodes

from llmendpoint_server.api.chat_options import ChatOptions, Messages, joined
from llmendpoint_server.api.templates import ChatTemplate

PROBE_SECONDS = 1.0
Arguments = Literal["object", "text"]
Silent = Literal["missing", "null", "empty"]
"""The content of a message that has only calls."""
Parts = Literal["joined", "kept", "always"]
"""A content of several parts: becomes one text; stays a list; and the template knows no other content."""

_FUNCTION = {
    "name": "probe_function",
    "description": "probe",
    "parameters": {"type": "object", "properties": {"probe_key": {"type": "string", "description": "probe"}}},
}
_TOOLS = [{"type": "function", "function": _FUNCTION}]
_QUESTION = {"role": "user", "content": "probe_question"}
_CALL_ID = "probe0id1"  # of the only form that Mistral's templates take


@dataclass(frozen=True)
class Style:
    """`tools`: it shows the functions that may be called. `calls`: it shows calls that were made, and their results.
    `system`: it takes a system message."""

    tools: bool = False
    calls: bool = False
    arguments: Arguments = "object"
    silent: Silent = "missing"
    parts: Parts = "joined"
    system: bool = True

    def fit(self, messages: Messages) -> list[dict[str, Any]]:
        """The messages as the template wants them. Those given are not changed."""
        return [self._fit_one(message) for message in messages]

    def _fit_one(self, message: Mapping[str, Any]) -> dict[str, Any]:
        fitted = dict(message)
        content = fitted.get("content")
        if isinstance(content, list) and self.parts == "joined":
            fitted["content"] = joined(content)
        elif isinstance(content, str) and self.parts == "always":
            fitted["content"] = [{"type": "text", "text": content}]
        if calls := fitted.get("tool_calls"):
            fitted["tool_calls"] = [self._fit_call(call) for call in calls]
            if not content:
                fitted.pop("content", None)
                if self.silent != "missing":
                    fitted["content"] = None if self.silent == "null" else ""
        return fitted

    def _fit_call(self, call: Mapping[str, Any]) -> dict[str, Any]:
        if self.arguments == "object":
            return dict(call)
        function = call["function"]
        text = json.dumps(function["arguments"], ensure_ascii=False)
        return {**call, "function": {**function, "arguments": text}}


def find_style(template: ChatTemplate) -> Style:
    parts = _find_parts(template)
    system = _renders(
        template, [{"role": "system", "content": "probe_system"}, _QUESTION], "probe_system", parts
    )
    tools = _renders(template, [_QUESTION], "probe_function", parts, tools=True)
    for silent in ("missing", "null", "empty"):
        for arguments in ("object", "text"):
            style = Style(tools, True, arguments, silent, parts, system)
            if _shows_calls(template, style):
                return style
    return Style(tools, False, parts=parts, system=system)


def _shows_calls(template: ChatTemplate, style: Style) -> bool:
    function = {"name": "probe_function", "arguments": {"probe_key": "probe_value"}}
    messages: list[dict[str, Any]] = [
        _QUESTION,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": _CALL_ID, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": _CALL_ID, "name": "probe_function", "content": "probe_result"},
    ]
    text = _try(template, style.fit(messages), tools=True)
    # Python's or doubly quoted JSON is what a template shows that expects the other kind of arguments.
    wrong = "{'probe_key'" in text or '\\"probe_value' in text
    return "probe_result" in text and "probe_value" in text and not wrong


def _renders(
    template: ChatTemplate, messages: Messages, what: str, parts: Parts, tools: bool = False
) -> bool:
    return what in _try(template, Style(parts=parts).fit(messages), tools=tools)


def _try(template: ChatTemplate, messages: Messages, *, tools: bool) -> str:
    try:
        return template.render(messages, ChatOptions(tools=_TOOLS if tools else None), PROBE_SECONDS)
    except Exception:  # any: whatever the template's own expressions raise; then this is not its style
        return ""


def _find_parts(template: ChatTemplate) -> Parts:
    """A template that goes through a content's items wants parts; one that also asks whether it is a string takes both."""
    tree = template.tree()
    loops = [loop for loop in tree.find_all(nodes.For) if _is_content(loop.iter)]
    if not loops:
        return "joined"
    tested = any(
        test.name in ("string", "iterable", "sequence") and _is_content(test.node)
        for test in tree.find_all(nodes.Test)
    )
    return "kept" if tested else "always"


def _is_content(expression: nodes.Node) -> bool:
    match expression:
        case nodes.Filter(node=nodes.Node() as inner):
            return _is_content(inner)
        case nodes.Getattr(attr="content") | nodes.Name(name="content"):
            return True
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return True
    return False
