"""Calls as Gemma writes them: `call:name{key:value}`, where a string stands between two marks and has no escapes. The
JSON is made here, as it comes."""

from __future__ import annotations

import json
import re

from llmendpoint_server.api.tools.source import (
    DEPTH_MAX,
    NAME,
    Broken,
    MarkedReader,
    NewId,
    Reading,
)

BARE = re.compile(r"[^,:{}\[\]<\"\s]*")
WORDS = ("true", "false", "null")
NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


class GemmaReader(MarkedReader):
    """`opening` and `closing` stand around a call, `quote` around a string."""

    opening, closing, quote = "<|tool_call>", "<tool_call|>", '<|"|>'

    def __init__(self, new_id: NewId) -> None:
        super().__init__(new_id)
        self.markers = (self.opening,)

    def call(self, marker: str) -> Reading[None]:
        source = self.source
        yield from source.skip_space()
        yield from source.expect("call:")
        name = yield from source.take(NAME)
        yield from source.skip_space()
        if not name or (yield from source.peek()) != "{":
            raise Broken
        source.begin_call(name)
        source.commit()
        yield from self._value(0)
        source.commit()
        yield from source.skip_space()
        if not (yield from source.try_take(self.closing)):
            source.at = 0

    def _value(self, depth: int) -> Reading[None]:
        source = self.source
        if depth > DEPTH_MAX:
            raise Broken
        yield from source.skip_space()
        first = yield from source.peek()
        if first == "{":
            yield from self._members("{", "}", depth)
        elif first == "[":
            yield from self._members("[", "]", depth)
        elif (yield from self._starts_string()):
            yield from self._string()
        else:
            self._show((yield from self._bare(keyed=False)))

    def _members(self, opening: str, closing: str, depth: int) -> Reading[None]:
        source = self.source
        yield from source.expect(opening)
        self._show(opening)
        yield from source.skip_space()
        if (yield from source.try_take(closing)):
            self._show(closing)
            return
        while True:
            if opening == "{":
                yield from self._key()
            yield from self._value(depth + 1)
            yield from source.skip_space()
            if not (yield from source.try_take(",")):
                break
            self._show(", ")
        yield from source.expect(closing)
        self._show(closing)

    def _key(self) -> Reading[None]:
        source = self.source
        yield from source.skip_space()
        if (yield from self._starts_string()):
            yield from self._string()
        else:
            self._show((yield from self._bare(keyed=True)))
        yield from source.skip_space()
        yield from source.expect(":")
        self._show(": ")

    def _starts_string(self) -> Reading[bool]:
        source = self.source
        for mark in (self.quote, '"'):
            if (yield from source.try_take(mark)):
                source.at -= len(mark)
                return True
        return False

    def _string(self) -> Reading[None]:
        source = self.source
        mark = '"' if (yield from source.try_take('"')) else self.quote
        if mark != '"':
            yield from source.expect(mark)
        source.commit()
        source.arguments('"')
        if not (yield from source.stream_until((mark,), lambda text: source.arguments(_inside(text)))):
            raise Broken
        source.arguments('"')

    def _bare(self, *, keyed: bool) -> Reading[str]:
        """A key, a number or a word without marks. Other text counts as a string."""
        text = yield from self.source.take(BARE)
        if not text:
            raise Broken
        if keyed or not (text in WORDS or NUMBER.fullmatch(text)):
            return json.dumps(text, ensure_ascii=False)
        return text

    def _show(self, text: str) -> None:
        self.source.arguments(text)
        self.source.commit()


def _inside(text: str) -> str:
    """Text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class FunctionGemmaReader(GemmaReader):
    opening, closing, quote = "<start_function_call>", "<end_function_call>", "<escape>"
