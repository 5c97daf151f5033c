"""Grammars that hold an answer to calls of functions, in the model's own form, and to the schemas of their parameters.

They are in llguidance's variant of Lark. A marker that is a special token of the model is written as one, because text
cannot make it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from llmendpoint_server.api.tools.asked import ANY_ARGUMENTS, Function
from llmendpoint_server.api.tools.frames import COUNT, NAME, Frame
from llmendpoint_server.api.tools.reasoning import Marks
from llmendpoint_server.core.closing import closed
from llmendpoint_server.core.grammar import DEFAULT_WHITESPACE, Grammar

TokenOf = Callable[[str], int | None]
"""The id of a special token with this text."""
ANY_TEXT = r"/(.|\n)*/"


@dataclass(frozen=True)
class Thoughts:
    """What may come before the answer proper. `inside`: it has begun in the prompt."""

    openings: tuple[str, ...]
    closings: tuple[str, ...]
    inside: bool

    @classmethod
    def of(cls, marks: Marks, *, inside: bool) -> Thoughts:
        return cls(marks.openings, marks.closings, inside)


HARMONY_THOUGHTS = Thoughts(("<|channel|>analysis<|message|>",), ("<|end|><|start|>assistant",), inside=False)


class Writer:
    """Rules of one grammar. `pieces`: texts that are special tokens, if the model has them."""

    def __init__(self, token_of: TokenOf, markers: Sequence[str]) -> None:
        self._ids = {text: at for text in markers if (at := token_of(text)) is not None}
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._split = re.compile(f"({'|'.join(map(re.escape, [*longest_first, COUNT]))})")
        self._rules: list[str] = []

    def rule(self, name: str, body: str, options: str = "") -> str:
        self._rules.append(f"{name}{options}: {body}")
        return name

    def literal(self, text: str) -> str:
        return " ".join(self._pieces(text)) or '""'

    def _pieces(self, text: str) -> Iterator[str]:
        for piece in filter(None, self._split.split(text)):
            if piece == COUNT:
                yield "/[0-9]{1,3}/"
            elif piece in self._ids:
                yield f"<[{self._ids[piece]}]>"
            else:
                yield json.dumps(piece)

    def text_until(self, name: str, marker: str) -> str:
        """Any text up to `marker`, and the marker."""
        first, *rest = self._split.split(marker)
        if not first:  # it begins with a special token, which is no text
            return f"{ANY_TEXT} {self.literal(marker)}"
        self.rule(name, f"/(.|\\n)*{_escaped(first)}/", "[lazy]")
        return f"{name} {self.literal(''.join(rest))}" if "".join(rest) else name

    def json(self, name: str, schema: Any, whitespace: str | None = None) -> str:
        if isinstance(schema, dict):
            flexible = {"whitespace_pattern": DEFAULT_WHITESPACE if whitespace is None else whitespace}
            schema = closed(schema) | {
                "x-guidance": {"whitespace_flexible": False} if whitespace == "" else flexible
            }
        return self.rule(name, f"%json {json.dumps(schema)}")

    def grammar(self, start: str) -> Grammar:
        return Grammar("lark", "\n".join([f"start: {start}", *self._rules]))


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
        text = writer.rule("text", r"/([^{ \n](.|\n)*)?/")
        return writer.grammar(f"{_after(thoughts, writer)}({calls} | {text})")
    calls = writer.rule(
        "calls",
        _calls(functions, _behind_marker(frame), writer, parallel=bool(frame.first), strict_only=True),
    )
    begin = writer.text_until("to_call", frame.marker)
    return writer.grammar(f"{_after(thoughts, writer)}({begin} {calls})* {ANY_TEXT}")


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


def _behind_marker(frame: Frame) -> Frame:
    if frame.first:
        return Frame(
            frame.before, frame.after, frame.between, frame.first.removeprefix(frame.marker), frame.last
        )
    return Frame(frame.before.removeprefix(frame.marker), frame.after, None)


def _calls(
    functions: Sequence[Function], frame: Frame, writer: Writer, *, parallel: bool, strict_only: bool
) -> str:
    names = []
    for at, function in enumerate(functions):
        free = strict_only and not function.strict
        schema = json.loads(ANY_ARGUMENTS if free else function.parameters)
        arguments = writer.json(f"arguments_{at}", schema)
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
            return writer.rule("body", _as_lark(asked.text))
        case "lark":
            raise ValueError("a caller's own grammar has its own start")


def _as_lark(pattern: str) -> str:
    r"""Between slashes; those of the pattern are escaped, unless they are so already."""
    inside = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", pattern, flags=re.S)
    return "/" + inside.replace("\n", r"\n") + "/"


def _escaped(text: str) -> str:
    return re.sub(r"([.^$*+?()\[\]{}|\\/])", r"\\\1", text).replace("\n", r"\n")
