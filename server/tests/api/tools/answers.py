"""Answers as models write them, one kind of each format, and how tests read them."""

# ruff: noqa: UP031  # `format` would need each brace of JSON twice

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace

from llmendpoint_server.api.deltas import (
    AnswerReader,
    Content,
    Delta,
    Reasoning,
    ToolCallArguments,
    ToolCallBegun,
)
from llmendpoint_server.api.tools.readers import TOOL_FORMATS

SCHEMAS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "hourly": {"type": "boolean"},
        },
    },
    "now": {"type": "object", "properties": {}},
}
PARIS = {"city": 'Paris "FR"\n', "days": 3, "hourly": True}
_PARIS = json.dumps(PARIS)


@dataclass(frozen=True)
class Case:
    """`text` holds a call of get_weather with PARIS and then one of now without arguments, with `before` as content."""

    format: str
    text: str
    before: str = ""


CASES = [
    Case("hermes", 'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": %s}\n</tool_call>\n<tool_call>\n'
         '{"name": "now", "arguments": {}}\n</tool_call>' % _PARIS, "Let me look."),
    Case("hermes", '<tool_call>{"arguments": %s, "name": "get_weather"}</tool_call><tool_call>{"name": "now"}</tool_call>' % _PARIS),
    Case("llama3_json", '{"type": "function", "name": "get_weather", "parameters": %s}; {"name": "now", "parameters": {}}' % _PARIS),
    Case("llama3_json", 'So:<|python_tag|>{"name": "get_weather", "parameters": %s};\n{"name": "now", "parameters": {}}' % _PARIS, "So:"),
    Case("mistral", '[TOOL_CALLS] [{"name": "get_weather", "arguments": %s, "id": "abcdefghi"}, {"name": "now", "arguments": {}}]' % _PARIS),
    Case("mistral", "I look.[TOOL_CALLS]get_weather[ARGS]%s[TOOL_CALLS]now[CALL_ID]abcdefghi[ARGS]{}" % _PARIS, "I look."),
    Case("mistral", "[TOOL_CALLS]get_weather%s[TOOL_CALLS]now{}" % _PARIS),
    Case("deepseek_v3", "Well.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n%s\n```"
         "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
         % _PARIS, "Well."),
    Case("deepseek_v3", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>%s<｜tool▁call▁end｜>"
         "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>" % _PARIS),
    Case("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>%s"
         "<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
         "<|tool_calls_section_end|>" % _PARIS),
    Case("granite", '<|tool_call|>[{"name": "get_weather", "arguments": %s}, {"name": "now", "arguments": {}}]' % _PARIS),
    Case("phi4_mini_json", '<|tool_call|>[{"name": "get_weather", "arguments": %s}, {"name": "now", "arguments": {}}]<|/tool_call|>' % _PARIS),
    Case("qwen3_coder", "First.\n<tool_call>\n<function=get_weather>\n<parameter=city>\n%s\n</parameter>\n<parameter=days>\n3\n"
         "</parameter>\n<parameter=hourly>\nTrue\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n"
         "</function>\n</tool_call>" % PARIS["city"], "First."),
    Case("glm45", "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>%s</arg_value>\n<arg_key>days</arg_key>\n"
         "<arg_value>3</arg_value>\n<arg_key>hourly</arg_key>\n<arg_value>true</arg_value>\n</tool_call>\n"
         "<tool_call>now\n</tool_call>" % PARIS["city"]),
    Case("minimax_m2", 'I look.\n<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">%s</parameter>\n'
         '<parameter name="days">3</parameter>\n<parameter name="hourly">true</parameter>\n</invoke>\n<invoke name="now">\n</invoke>\n'
         "</minimax:tool_call>" % PARIS["city"], "I look."),
    Case("deepseek_v32", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n'
         '<｜DSML｜parameter name="city" string="true">%s</｜DSML｜parameter>\n'
         '<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n'
         '<｜DSML｜parameter name="hourly" string="false">true</｜DSML｜parameter>\n</｜DSML｜invoke>\n'
         '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>' % PARIS["city"]),
    Case("gemma4", '<|tool_call>call:get_weather{city:<|"|>%s<|"|>,days:3,hourly:true}<tool_call|><|tool_call>call:now{}<tool_call|>'
         % PARIS["city"]),
    Case("functiongemma", "<start_function_call>call:get_weather{city:<escape>%s<escape>,days:3,hourly:true}<end_function_call>"
         "<start_function_call>call:now{}<end_function_call>" % PARIS["city"]),
    Case("pythonic", "[get_weather(city='Paris \"FR\"\\n', days=3, hourly=True), now()]"),
    Case("pythonic", 'Hm.<|python_start|>[get_weather(city="Paris \\"FR\\"\\x0a", days=3, hourly=True), now()]<|python_end|>', "Hm."),
    Case("openai", "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
         "<|constrain|>json<|message|>%s<|call|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{}<|call|>"
         % _PARIS, "I look."),
]  # fmt: skip


def merge(deltas: Iterable[Delta]) -> list[Delta]:
    """The same with neighbours of one kind joined. Empty content and reasoning go."""
    joined: list[Delta] = []
    for delta in deltas:
        last = joined[-1] if joined else None
        match delta, last:
            case (Content(text), Content(before)):
                joined[-1] = Content(before + text)
            case (Reasoning(text), Reasoning(before)):
                joined[-1] = Reasoning(before + text)
            case (ToolCallArguments(index, text), ToolCallArguments(same, before)) if index == same:
                joined[-1] = ToolCallArguments(index, before + text)
            case (Content("") | Reasoning(""), _):
                pass
            case _:
                joined.append(delta)
    return joined


@dataclass(frozen=True)
class Call:
    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """A whole answer."""

    content: str
    reasoning: str
    calls: tuple[Call, ...]


def collect(deltas: Iterable[Delta]) -> Answer:
    content = reasoning = ""
    calls: dict[int, Call] = {}
    for delta in deltas:
        match delta:
            case Content(text):
                content += text
            case Reasoning(text):
                reasoning += text
            case ToolCallBegun(index, call_id, name):
                calls[index] = Call(call_id, name, "")
            case ToolCallArguments(index, text):
                calls[index] = replace(calls[index], arguments=calls[index].arguments + text)
    return Answer(content, reasoning, tuple(calls.values()))


def reader_of(format_name: str) -> AnswerReader:
    counter = itertools.count()
    return TOOL_FORMATS[format_name].reader(lambda: f"id{next(counter)}", SCHEMAS)


def read(reader: AnswerReader, pieces: Iterable[str]) -> list[Delta]:
    deltas = [delta for piece in pieces for delta in reader.push(piece)]
    return merge([*deltas, *reader.finish()])


def answer_of(format_name: str, text: str) -> Answer:
    return collect(read(reader_of(format_name), [text]))
