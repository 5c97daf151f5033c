"""Calls whose parameters stand in tags of their own: Qwen3-Coder, GLM 4.5, MiniMax M2 and DeepSeek V3.2. The JSON is made here.

A value is text. What it means is in the function's schema: a string stays text, and is shown as it comes; anything
else waits until it is whole, and is a string too if it is not JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from llmendpoint_server.api.tools.json_text import parse
from llmendpoint_server.api.tools.source import (
    HEAD_MAX,
    NAME,
    VALUE_MAX,
    Broken,
    MarkedReader,
    NewId,
    Reading,
)

PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
LINE = re.compile(r"[^\n<]*")
Schemas = Mapping[str, Mapping[str, Any]]
"""By function: its parameters' JSON schema."""


class TaggedParameters(MarkedReader):
    """Gives the arguments of one call after another, parameter by parameter."""

    markers: Sequence[str] = ("<tool_call>",)
    value_end: str
    newline_around = False
    """a line break after the opening tag and before the closing one belongs to the tags"""

    def __init__(self, new_id: NewId, schemas: Schemas) -> None:
        super().__init__(new_id)
        self._schemas = schemas
        self._between = "{"

    def begin(self, name: str) -> None:
        if not NAME.fullmatch(name):
            raise Broken
        self.source.begin_call(name)
        self.source.commit()
        self._between = "{"

    def end_call(self) -> None:
        self.source.arguments("{}" if self._between == "{" else "}")

    def next_tag(self, tag: str) -> Reading[bool]:
        """Read `tag`, with white space before it, if it comes next."""
        self.source.commit()
        yield from self.source.skip_space()
        if (yield from self.source.try_take(tag)):
            return True
        self.source.at = 0
        return False

    def parameter(self, name: str, key: str, *, text: bool | None = None) -> Reading[None]:
        """The value up to its closing tag, which is read too. Nothing of it can be given back. `text`: whether it is a string; None: the
        function's schema says so."""
        source = self.source
        if self.newline_around:
            yield from source.try_take("\n")
        source.commit()
        source.arguments(f"{self._between}{json.dumps(key, ensure_ascii=False)}: ")
        self._between = ", "
        if _is_text(self._schemas.get(name, {}), key) if text is None else text:
            yield from self._stream_text()
            return
        try:
            value = yield from source.take_until(self.value_end, VALUE_MAX)
        except Broken:  # too long, or the answer ended
            yield from self._stream_text()
            return
        source.commit()
        source.arguments(_as_json(value.removesuffix("\n") if self.newline_around else value))

    def _stream_text(self) -> Reading[None]:
        source, held = self.source, ""

        def show(text: str) -> None:
            nonlocal held
            text = held + text
            held = "\n" if self.newline_around and text.endswith("\n") else ""
            source.arguments(json.dumps(text.removesuffix(held), ensure_ascii=False)[1:-1])

        source.arguments('"')
        if not (yield from source.stream_until((self.value_end,), show)):
            source.arguments("\\n" if held else "")
            raise Broken  # the answer ended here, so the arguments stay open
        source.arguments('"')


def _is_text(schema: Mapping[str, Any], key: str) -> bool:
    properties = schema.get("properties")
    about = properties.get(key) if isinstance(properties, Mapping) else None
    return isinstance(about, Mapping) and about.get("type") == "string"


def _as_json(value: str) -> str:
    try:
        parse(value)
    except Broken:
        return PYTHON_WORDS.get(value.strip()) or json.dumps(value, ensure_ascii=False)
    return value.strip()


class QwenCoderReader(TaggedParameters):
    """`<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`, with line breaks between."""

    markers = ("<tool_call>", "<function=")
    value_end = "</parameter>"
    newline_around = True

    def call(self, marker: str) -> Reading[None]:
        source = self.source
        if marker == "<tool_call>":
            yield from source.skip_space()
            yield from source.expect("<function=")
        name = (yield from source.take_until(">")).strip()
        yield from source.skip_space()
        if (yield from source.peek(len("<parameter="))) not in ("<parameter=", "</function>"):
            raise Broken
        self.begin(name)
        while (yield from self.next_tag("<parameter=")):
            yield from self.parameter(name, (yield from source.take_until(">", HEAD_MAX)))
        self.end_call()
        yield from self.next_tag("</function>")
        yield from self.next_tag("</tool_call>")


class GlmReader(TaggedParameters):
    """`<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`, with line breaks between."""

    value_end = "</arg_value>"

    def call(self, marker: str) -> Reading[None]:
        source = self.source
        name = (yield from source.take(LINE)).strip()
        yield from source.skip_space()
        if (yield from source.peek(len("<arg_key>"))) not in ("<arg_key>", "</tool_ca"):
            raise Broken
        self.begin(name)
        while (yield from self.next_tag("<arg_key>")):
            key = yield from source.take_until("</arg_key>")
            yield from source.skip_space()
            yield from source.expect("<arg_value>")
            yield from self.parameter(name, key.strip())
        self.end_call()
        yield from self.next_tag("</tool_call>")


class InvokeReader(TaggedParameters):
    """`<invoke name="function"><parameter name="key">value</parameter></invoke>`, one or several between an opening and a closing tag, with
    line breaks between tags. `prefix`: of the tags' names."""

    closing: str
    prefix = ""

    def call(self, marker: str) -> Reading[None]:
        source, begin = self.source, f'<{self.prefix}invoke name="'
        yield from source.skip_space()
        yield from source.expect(begin)
        while True:
            yield from self._one()
            if not (yield from self.next_tag(begin)):
                break
        yield from self.next_tag(self.closing)

    def _one(self) -> Reading[None]:
        source = self.source
        parameter, end = f'<{self.prefix}parameter name="', f"</{self.prefix}invoke>"
        name = (yield from source.take_until('"')).strip()
        yield from source.expect(">")
        yield from source.skip_space()
        if not ((yield from self._follows(parameter)) or (yield from self._follows(end))):
            raise Broken
        self.begin(name)
        while (yield from self.next_tag(parameter)):
            key = yield from source.take_until('"')
            about = yield from source.take_until(">")
            yield from self.parameter(name, key, text=self.text_by(about))
        self.end_call()
        yield from self.next_tag(end)

    def _follows(self, text: str) -> Reading[bool]:
        return (yield from self.source.peek(len(text))) == text

    def text_by(self, about: str) -> bool | None:
        """What the parameter's tag says, behind its name."""
        return None


class MiniMaxReader(InvokeReader):
    markers = ("<minimax:tool_call>",)
    closing = "</minimax:tool_call>"
    value_end = "</parameter>"


class DeepSeekTagsReader(InvokeReader):
    """DeepSeek V3.2. The tag of a parameter says whether its value is a string or JSON: `string="true"`."""

    markers = ("<｜DSML｜function_calls>",)
    closing = "</｜DSML｜function_calls>"
    prefix = "｜DSML｜"
    value_end = "</｜DSML｜parameter>"

    def text_by(self, about: str) -> bool | None:
        return {'string="true"': True, 'string="false"': False}.get(about.strip())
