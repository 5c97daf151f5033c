"""Grammars that hold an answer to calls of functions, in the model's own form, and to the schemas of their parameters."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmendpoint_server.api import structural_tags
from llmendpoint_server.api.tools.asked import ANY_ARGUMENTS, Function
from llmendpoint_server.api.tools.frames import NAME, Frame
from llmendpoint_server.api.tools.parameters import ParameterRules, listed
from llmendpoint_server.api.tools.reasoning import Marks
from llmendpoint_server.api.tools.writer import ANY_TEXT, Writer, as_lark, escaped
from llmendpoint_server.core.grammar import Grammar


@dataclass(frozen=True)
class Thoughts:
    """What may come before the answer proper. `inside`: it has begun in the prompt."""

    openings: tuple[str, ...]
    closings: tuple[str, ...]
    inside: bool

    @classmethod
    def of(cls, marks: Marks, *, inside: bool) -> Thoughts:
        return cls(marks.openings, marks.closings, inside)


HARMONY_HEADS = ("<|channel|>analysis<|message|>", "<|channel|>commentary<|message|>")
HARMONY_END = "<|end|><|start|>assistant"
HARMONY_THOUGHTS = Thoughts(HARMONY_HEADS[:1], (HARMONY_END,), inside=False)


def must_call(
    functions: Sequence[Function], frame: Frame, writer: Writer, thoughts: Thoughts | None, *, parallel: bool
) -> Grammar:
    """An answer that is one call or, if `parallel`, more."""
    calls = writer.rule("calls", _calls(functions, frame, writer, parallel=parallel, strict_only=False))
    return writer.grammar(_after(thoughts, writer) + calls)


def may_call(
    functions: Sequence[Function], frame: Frame, writer: Writer, thoughts: Thoughts | None
) -> Grammar:
    """Free text, or calls; those of strict functions follow their schema."""
    if not frame.marker:
        calls = writer.rule("calls", _calls(functions, frame, writer, parallel=True, strict_only=True))
        first = escaped((frame.first or frame.before)[0])
        text = writer.rule("text", rf"/([^{first} \n](.|\n)*)?/")
        return writer.grammar(f"{_after(thoughts, writer)}({calls} | {text})")
    calls = writer.rule(
        "calls",
        _calls(functions, frame.behind_marker(), writer, parallel=bool(frame.first), strict_only=True),
    )
    begin = writer.text_until("to_call", frame.marker)
    return writer.grammar(f"{_after(thoughts, writer)}({begin} {calls})* {ANY_TEXT}")


def may_call_in_channels(functions: Sequence[Function], frame: Frame, writer: Writer) -> Grammar:
    """The same for gpt-oss: messages of reasoning and to the user, and at the end a call or an answer."""
    ends = writer.text_until("message", HARMONY_END)
    heads = writer.rule("head", " | ".join(map(writer.literal, HARMONY_HEADS)))
    calls = writer.rule("calls", _calls(functions, frame, writer, parallel=False, strict_only=True))
    final = writer.literal("<|channel|>final<|message|>")
    return writer.grammar(f"(head {ends})* ({calls} | ({heads} | {final}) {ANY_TEXT})")


def call_or_follow(
    functions: Sequence[Function],
    frame: Frame,
    writer: Writer,
    thoughts: Thoughts | None,
    asked: Grammar,
    before: str = "",
) -> Grammar:
    """An answer that is calls, or follows a JSON schema. `before`: what the form has in front of the latter."""
    calls = writer.rule("calls", _calls(functions, frame, writer, parallel=True, strict_only=True))
    return writer.grammar(
        f"{_after(thoughts, writer)}({calls} | {_head(before, writer)}{_body(asked, writer)})"
    )


def follow(asked: Grammar, writer: Writer, thoughts: Thoughts | None, before: str = "") -> Grammar:
    """A caller's grammar for what comes behind the reasoning. `before`: what the form has in front of it."""
    return writer.grammar(f"{_after(thoughts, writer)}{_head(before, writer)}{_body(asked, writer)}")


def _head(before: str, writer: Writer) -> str:
    return f"{writer.literal(before)} " if before else ""


def _calls(
    functions: Sequence[Function], frame: Frame, writer: Writer, *, parallel: bool, strict_only: bool
) -> str:
    names = []
    for at, function in enumerate(functions):
        free = strict_only and not function.strict
        schema = json.loads(ANY_ARGUMENTS if free else function.parameters)
        arguments = _arguments(f"arguments_{at}", schema, frame, writer)
        before = writer.literal(frame.before.replace(NAME, function.name))
        after = f" {writer.literal(frame.after)}" if frame.after else ""
        names.append(writer.rule(f"call_{at}", f"{before} {arguments}{after}"))
    one = writer.rule("call", " | ".join(names))
    more = ""
    if parallel and frame.between is not None:
        between = f"{writer.literal(frame.between)} " if frame.between else ""
        more = f" ({between}{one})*"
    first = f"{writer.literal(frame.first)} " if frame.first else ""
    last = f" {writer.literal(frame.last)}" if frame.last else ""
    return f"{first}{one}{more}{last}"


def _arguments(name: str, schema: Any, frame: Frame, writer: Writer) -> str:
    """Those that the form cannot hold to their schema are free."""
    if frame.parameters is None:
        return writer.json(name, schema)
    rules = ParameterRules(writer, frame.parameters, name)
    parameters = listed(schema, frame.parameters)
    return rules.any() if parameters is None else rules.of(parameters)


def _after(thoughts: Thoughts | None, writer: Writer) -> str:
    """What may come first: reasoning, if the model does so."""
    if thoughts is None:
        return ""
    ways = [writer.text_until(f"thoughts_{at}", closing) for at, closing in enumerate(thoughts.closings)]
    until = writer.rule("thoughts", f"({' | '.join(ways)}) /\\n{{0,2}}/")
    if thoughts.inside:
        return f"{until} "
    opening = " | ".join(map(writer.literal, thoughts.openings))
    return f"(({opening}) {until})? "


def _body(asked: Grammar, writer: Writer) -> str:
    match asked.kind:
        case "json_schema":
            return writer.json("body", json.loads(asked.text), asked.whitespace)
        case "choice":
            return writer.rule("body", " | ".join(map(json.dumps, json.loads(asked.text))))
        case "regex":
            return writer.rule("body", as_lark(asked.text))
        case "structural_tag":
            return writer.rule("body", structural_tags.body(asked, writer))
        case "lark":
            raise ValueError("a caller's own grammar has its own start")
