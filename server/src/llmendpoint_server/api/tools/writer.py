"""Writes a grammar in llguidance's variant of Lark, rule by rule.

A marker that is a special token of the model is written as one, because text cannot make it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from llmendpoint_server.api.tools.frames import COUNT
from llmendpoint_server.core.closing import closed
from llmendpoint_server.core.grammar import DEFAULT_WHITESPACE, Grammar

TokenOf = Callable[[str], int | None]
"""The id of a special token with this text."""
ANY_TEXT = r"/(.|\n)*/"


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
        # A special token ends a text. Otherwise the text's own first end does.
        special = "".join(rest)
        self.rule(name, f"/(.|\\n)*{escaped(first)}/", "" if special else "[lazy]")
        return f"{name} {self.literal(special)}" if special else name

    def pattern_until(self, name: str, pattern: str, marker: str) -> str:
        """Text that matches the whole pattern, and `marker`, which is not in the text."""
        first, *rest = self._split.split(marker)
        whole = as_lark(f"({pattern})")
        if not first:
            return f"{whole} {self.literal(marker)}"
        other = f"/(.|\\n)*{escaped(first)}(.|\\n)*/"
        self.rule(name.upper(), f"({whole} & ~{other}) {json.dumps(first)}")
        special = "".join(rest)
        self.rule(name, name.upper(), "" if special else "[lazy]")
        return f"{name} {self.literal(special)}" if special else name

    def json(
        self, name: str, schema: Any, whitespace: str | None = None, options: Mapping[str, Any] | None = None
    ) -> str:
        """`options`: llguidance's, instead of `whitespace`."""
        if isinstance(schema, dict):
            flexible = {"whitespace_pattern": DEFAULT_WHITESPACE if whitespace is None else whitespace}
            given = {"whitespace_flexible": False} if whitespace == "" else flexible
            schema = closed(schema) | {"x-guidance": options or given}
        return self.rule(name, f"%json {json.dumps(schema)}")

    def grammar(self, start: str) -> Grammar:
        return Grammar("lark", "\n".join([f"start: {start}", *self._rules]))


def as_lark(pattern: str) -> str:
    r"""Between slashes; those of the pattern are escaped, unless they are so already."""
    inside = re.sub(r"(\\.)|/", lambda found: found[1] or r"\/", pattern, flags=re.S)
    return "/" + inside.replace("\n", r"\n") + "/"


def escaped(text: str) -> str:
    """A pattern of this text alone."""
    return re.sub(r"([.^$*+?()\[\]{}|\\/])", r"\\\1", text).replace("\n", r"\n")
