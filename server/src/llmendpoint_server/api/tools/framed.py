"""Calls whose name stands before the JSON of the arguments, between markers: Mistral, DeepSeek, Kimi K2."""

from __future__ import annotations

from llmendpoint_server.api.tools.call_objects import call_list
from llmendpoint_server.api.tools.json_text import stream_object
from llmendpoint_server.api.tools.source import NAME, Broken, MarkedReader, Reading, Source


def _arguments(source: Source, name: str, call_id: str = "") -> Reading[None]:
    if not NAME.fullmatch(name):
        raise Broken
    yield from stream_object(source, lambda: source.begin_call(name, call_id))


class MistralReader(MarkedReader):
    """`[TOOL_CALLS][{"name": ..., "arguments": {...}}]`, or since 2025 `[TOOL_CALLS]name[ARGS]{...}` for each call."""

    markers = ("[TOOL_CALLS]",)

    def call(self, marker: str) -> Reading[None]:
        source = self.source
        yield from source.skip_space()
        if (yield from source.peek()) in ("[", "{"):
            yield from call_list(source)
            return
        name = yield from source.take(NAME)
        if (yield from source.try_take("[CALL_ID]")):
            yield from source.take(NAME)
        yield from source.try_take("[ARGS]")
        yield from _arguments(source, name)


class DeepSeekReader(MarkedReader):
    """V3 and R1: `function<｜tool▁sep｜>name`, then the arguments in a fence of Markdown. V3.1: `name<｜tool▁sep｜>{...}`."""

    markers = ("<｜tool▁calls▁begin｜>",)

    def call(self, marker: str) -> Reading[None]:
        source = self.source
        if not (yield from self._next("<｜tool▁call▁begin｜>")):
            raise Broken
        while True:
            yield from self._one()
            source.commit()
            if not (yield from self._next("<｜tool▁call▁begin｜>")):
                break
        if not (yield from self._next("<｜tool▁calls▁end｜>")):
            raise Broken

    def _one(self) -> Reading[None]:
        source = self.source
        name = yield from source.take_until("<｜tool▁sep｜>")
        yield from source.skip_space()
        fenced = (yield from source.peek()) != "{"
        if fenced:
            name = yield from source.take(NAME)
            yield from source.skip_space()
            yield from source.expect("```json")
        yield from _arguments(source, name.strip())
        if fenced:
            yield from self._next("```")
        yield from self._next("<｜tool▁call▁end｜>")

    def _next(self, marker: str) -> Reading[bool]:
        """Read the marker, with white space before it, if it comes next."""
        yield from self.source.skip_space()
        return (yield from self.source.try_take(marker))


class KimiReader(MarkedReader):
    """`<|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}<|tool_call_end|>`. The model gives the ids,
    and its template wants them back."""

    markers = ("<|tool_calls_section_begin|>",)

    def call(self, marker: str) -> Reading[None]:
        source = self.source
        begun = source.calls
        while True:
            yield from source.skip_space()
            if not (yield from source.try_take("<|tool_call_begin|>")):
                break
            call_id = (yield from source.take_until("<|tool_call_argument_begin|>")).strip()
            yield from _arguments(source, call_id.partition(":")[0].removeprefix("functions."), call_id)
            yield from source.skip_space()
            yield from source.try_take("<|tool_call_end|>")
            source.commit()
        if source.calls == begun:
            raise Broken
        yield from source.expect("<|tool_calls_section_end|>")
