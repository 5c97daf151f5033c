"""Calls as JSON objects, `{"name": ..., "arguments": {...}}`: Hermes and Qwen, Llama 3, Granite and Phi, older Mistral."""

from __future__ import annotations

from collections.abc import Collection

from llmendpoint_server.api.tools.json_text import (
    parse,
    parsed_value,
    stream_object,
    whole_value,
)
from llmendpoint_server.api.tools.source import (
    NAME,
    Broken,
    MarkedReader,
    NewId,
    Reading,
    Source,
)

ARGUMENTS = ("arguments", "parameters")
BESIDE = ("id", "type")
"""Keys that some models add, whose values mean nothing here."""
EARLY_MAX = 16_384
"""Characters of arguments that come before the name, and so have to wait for it."""


class CallObject:
    """Reads one object. `known`: the names that a call may have; None: any."""

    def __init__(self, source: Source, known: Collection[str] | None = None) -> None:
        self._source, self._known = source, known
        self._name = ""
        self._early: str | None = None
        self._begun = False

    def read(self) -> Reading[None]:
        source = self._source
        yield from source.expect("{")
        while True:
            yield from source.skip_space()
            yield from self._member()
            yield from source.skip_space()
            if (yield from source.try_take("}")):
                break
            yield from source.expect(",")
        self._finish()
        source.commit()

    def _member(self) -> Reading[None]:
        source = self._source
        key = yield from parsed_value(source)
        yield from source.skip_space()
        yield from source.expect(":")
        yield from source.skip_space()
        if key == "name" and not self._name:
            self._name = yield from self._take_name()
        elif key in ARGUMENTS and self._early is None and not self._begun:
            yield from self._take_arguments()
        elif key in BESIDE:
            yield from whole_value(source)
        else:
            raise Broken

    def _take_name(self) -> Reading[str]:
        name = yield from parsed_value(self._source)
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise Broken
        if self._known is not None and name not in self._known:
            raise Broken
        return name

    def _take_arguments(self) -> Reading[None]:
        source = self._source
        if (yield from source.peek()) == "{" and self._name:
            yield from stream_object(source, self._begin)
        else:
            self._early = _object_text((yield from whole_value(source, EARLY_MAX)))

    def _begin(self) -> None:
        self._begun = True
        self._source.begin_call(self._name)

    def _finish(self) -> None:
        """At the object's end. Without a marker around it, an object is a call only if it has arguments."""
        if self._begun:
            return
        if not self._name or (self._early is None and self._known is not None):
            raise Broken
        self._begin()
        self._source.arguments(self._early or "{}")


def _object_text(value: str) -> str:
    """The arguments' text. Some models write null for none, or the object once more as a string."""
    content = parse(value)
    if content is None:
        return "{}"
    if isinstance(content, str):
        value, content = content, parse(content)
    if not isinstance(content, dict):
        raise Broken
    return value


def call_list(source: Source) -> Reading[None]:
    """`[{...}, {...}]`, or one object without the list."""
    yield from source.skip_space()
    if not (yield from source.try_take("[")):
        yield from CallObject(source).read()
        return
    while True:
        yield from source.skip_space()
        yield from CallObject(source).read()
        yield from source.skip_space()
        if not (yield from source.try_take(",")):
            break
    yield from source.try_take("]")
    source.commit()


class TaggedObjects(MarkedReader):
    """An object, or a list of them, between an opening and a closing tag. A missing closing tag is forgiven."""

    closing = ""

    def call(self, marker: str) -> Reading[None]:
        yield from call_list(self.source)
        if self.closing:
            yield from self.source.skip_space()
            if not (yield from self.source.try_take(self.closing)):
                self.source.at = 0


class HermesReader(TaggedObjects):
    """`<tool_call>{...}</tool_call>`: Hermes, Qwen 2.5 and 3, Granite 4, SmolLM3."""

    markers = ("<tool_call>",)
    closing = "</tool_call>"


class GraniteReader(TaggedObjects):
    """`<|tool_call|>[{...}]`: Granite 3. Its first versions wrote `<tool_call>[{...}]`."""

    markers = ("<|tool_call|>", "<tool_call>")


class PhiReader(TaggedObjects):
    """`<|tool_call|>[{...}]<|/tool_call|>`: Phi-4-mini."""

    markers = ("<|tool_call|>",)
    closing = "<|/tool_call|>"


class LlamaReader(MarkedReader):
    """`{"name": ..., "parameters": {...}}` as a whole answer, or behind `<|python_tag|>`; several with `;` between
    them. Nothing marks the first kind, so it counts only for the functions that the request has."""

    markers = ("<|python_tag|>",)

    def __init__(self, new_id: NewId, known: Collection[str]) -> None:
        super().__init__(new_id)
        self._known = known

    def read(self) -> Reading[None]:
        yield from self.attempt(self._objects())
        yield from super().read()

    def call(self, marker: str) -> Reading[None]:
        yield from self._objects()

    def _objects(self) -> Reading[None]:
        source = self.source
        while True:
            yield from source.skip_space()
            yield from CallObject(source, self._known).read()
            yield from source.skip_space()
            if not (yield from source.try_take(";")) and (yield from source.peek()) != "{":
                source.at = 0
                return
