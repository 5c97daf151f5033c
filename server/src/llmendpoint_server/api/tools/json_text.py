"""Reads JSON in an answer: shown piece by piece as it comes, or as a whole. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from llmendpoint_server.api.tools.source import HEAD_MAX, Broken, Reading, Source

NESTED_MAX = 512
PARTNER = {"}": "{", "]": "["}
OUTSIDE = re.compile(r'[^"{}\[\]]*')
INSIDE = re.compile(r'[^"\\]*')
SCALAR = re.compile(r"[A-Za-z0-9.+\-]*")


class JsonEnd:
    """Finds where one string, list or object ends. It sees to strings and brackets only: whether what is between them
    is JSON does not matter for the end."""

    def __init__(self) -> None:
        self.done = self.broken = False
        self._open: list[str] = []
        self._in_string = self._escaped = False

    def scan(self, text: str, at: int) -> int:
        """Where the value ends, or the text. It is `broken` at a bracket that closes another one."""
        while at < len(text) and not self.done and not self.broken:
            if self._escaped:
                self._escaped = False
                at += 1
            elif self._in_string:
                at = self._scan_string(text, at)
            else:
                at = self._scan_outside(text, at)
        return at

    def _scan_string(self, text: str, at: int) -> int:
        at = _skip(INSIDE, text, at)
        if at < len(text):
            self._escaped = text[at] == "\\"
            self._in_string = self._escaped
            self.done = not self._in_string and not self._open
            at += 1
        return at

    def _scan_outside(self, text: str, at: int) -> int:
        at = _skip(OUTSIDE, text, at)
        if at == len(text):
            return at
        character = text[at]
        if character == '"':
            self._in_string = True
        elif character in "{[":
            self._open.append(character)
            self.broken = len(self._open) > NESTED_MAX
        elif self._open and self._open[-1] == PARTNER[character]:
            self._open.pop()
            self.done = not self._open
        else:
            self.broken = True
            return at
        return at + 1


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def stream_object(source: Source, begin: Callable[[], None]) -> Reading[None]:
    """An object as the arguments of a call, as it comes. `begin` is called when it looks like one: before that, Broken
    may be raised. The answer may end inside it."""
    yield from source.skip_space()
    start = source.at
    yield from source.expect("{")
    yield from source.skip_space()
    if (yield from source.peek()) not in ('"', "}"):
        raise Broken
    begin()
    source.text, source.at = source.text[start:], 0
    end = JsonEnd()
    while True:
        source.at = end.scan(source.text, 0)
        source.arguments(source.text[: source.at])
        source.commit()
        if end.broken:
            raise Broken
        if end.done or not (yield from source.more()):
            return


def whole_value(source: Source, longest: int = HEAD_MAX) -> Reading[str]:
    """The text of one value, of at most so many characters."""
    first = yield from source.peek()
    if first not in ('"', "{", "["):
        text = yield from source.take(SCALAR, longest)
        if not text:
            raise Broken
        return text
    end, start = JsonEnd(), source.at
    while True:
        source.at = end.scan(source.text, source.at)
        if end.broken or source.at - start > longest:
            raise Broken
        if end.done:
            return source.text[start : source.at]
        if not (yield from source.more()):
            raise Broken


def parsed_value(source: Source, longest: int = HEAD_MAX) -> Reading[Any]:
    text = yield from whole_value(source, longest)
    return parse(text)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def parse(text: str) -> Any:
    """Raises Broken for what is not JSON."""
    try:
        return json.loads(text, strict=False, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Broken from None
