"""Calls as a list of Python calls, `[name(key="value", other=[1, None])]`: Llama 3.2 and 4. The JSON is made here, as it
comes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from llmendpoint_server.api.tools.source import (
    DEPTH_MAX,
    Broken,
    MarkedReader,
    NewId,
    Reading,
)

WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NUMBER_PART = re.compile(r"[0-9+\-.eE]*")
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
WORDS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
PLAIN = re.compile(r"[^\\'\"]*")


def _inside(text: str) -> str:
    """Text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class PythonicReader(MarkedReader):
    """Nothing marks such a list, so it counts only at the answer's start, or behind `<|python_start|>`, and only for
    the functions that the request has."""

    markers = ("<|python_start|>",)

    def __init__(self, new_id: NewId, known: Collection[str]) -> None:
        super().__init__(new_id)
        self._known = known

    def read(self) -> Reading[None]:
        yield from self.attempt(self._list())
        yield from super().read()

    def call(self, marker: str) -> Reading[None]:
        yield from self._list()
        yield from self.source.skip_space()
        if not (yield from self.source.try_take("<|python_end|>")):
            self.source.at = 0

    def _list(self) -> Reading[None]:
        source = self.source
        yield from source.skip_space()
        yield from source.expect("[")
        while True:
            yield from source.skip_space()
            yield from self._one()
            yield from source.skip_space()
            if not (yield from source.try_take(",")):
                break
        yield from source.expect("]")
        source.commit()

    def _one(self) -> Reading[None]:
        source = self.source
        name = yield from source.take(WORD)
        if name not in self._known:
            raise Broken
        yield from source.expect("(")
        source.begin_call(name)
        self._show("{")
        yield from source.skip_space()
        if not (yield from source.try_take(")")):
            yield from self._keywords()
        self._show("}")

    def _keywords(self) -> Reading[None]:
        source = self.source
        while True:
            yield from source.skip_space()
            key = yield from source.take(KEY)
            yield from source.skip_space()
            yield from source.expect("=")
            if not key:
                raise Broken
            self._show(json.dumps(key) + ": ")
            yield from self._value(0)
            yield from source.skip_space()
            if (yield from source.try_take(")")):
                return
            yield from source.expect(",")
            self._show(", ")

    def _value(self, depth: int) -> Reading[None]:
        source = self.source
        if depth > DEPTH_MAX:
            raise Broken
        yield from source.skip_space()
        match (yield from source.peek()):
            case "'" | '"':
                yield from self._string()
            case "[":
                yield from self._items("[", "]", depth)
            case "(":
                yield from self._items("(", ")", depth)
            case "{":
                yield from self._items("{", "}", depth)
            case first if first and first in "-0123456789":
                text = yield from source.take(NUMBER_PART)
                if not NUMBER.fullmatch(text):
                    raise Broken
                self._show(text)
            case _:
                word = yield from source.take(WORD)
                if word not in WORDS:
                    raise Broken
                self._show(WORDS[word])

    def _items(self, opening: str, closing: str, depth: int) -> Reading[None]:
        source = self.source
        yield from source.expect(opening)
        self._show("{" if opening == "{" else "[")
        first = True
        while True:
            yield from source.skip_space()
            if (yield from source.try_take(closing)):  # also behind a last comma
                break
            self._show("" if first else ", ")
            first = False
            if opening == "{":
                yield from self._dict_key()
            yield from self._value(depth + 1)
            yield from source.skip_space()
            if not (yield from source.try_take(",")):
                yield from source.expect(closing)
                break
        self._show("}" if opening == "{" else "]")

    def _dict_key(self) -> Reading[None]:
        yield from self._string()
        yield from self.source.skip_space()
        yield from self.source.expect(":")
        self._show(": ")

    def _string(self) -> Reading[None]:
        source = self.source
        mark = yield from source.peek()
        if mark not in ("'", '"'):
            raise Broken
        source.at += 1
        self._show('"')
        while True:
            yield from source.stream_while(PLAIN, lambda text: source.arguments(_inside(text)))
            character = yield from source.peek()
            source.at += 1
            if character == mark:
                break
            if character == "\\":
                character = yield from self._escape()
            elif not character:
                raise Broken
            self._show(_inside(character))
        self._show('"')

    def _escape(self) -> Reading[str]:
        source = self.source
        kind = yield from source.peek()
        source.at += len(kind)
        if kind not in HEX_DIGITS:
            return ESCAPES.get(kind, kind)
        digits = yield from source.peek(HEX_DIGITS[kind])
        try:
            character = chr(int(digits, 16))
        except (ValueError, OverflowError):
            return "\\" + kind
        if len(digits) < HEX_DIGITS[kind] or "\ud800" <= character <= "\udfff":
            return "\\" + kind
        source.at += len(digits)
        return character

    def _show(self, text: str) -> None:
        self.source.arguments(text)
        self.source.commit()
