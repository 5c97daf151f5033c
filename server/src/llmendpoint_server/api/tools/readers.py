"""The formats by name, and the reader of an answer.

A format's name is the one of vLLM's --tool-call-parser or --reasoning-parser, where it has one.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from llmendpoint_server.api.deltas import AnswerReader
from llmendpoint_server.api.tools import frames
from llmendpoint_server.api.tools.call_objects import (
    GraniteReader,
    HermesReader,
    LlamaReader,
    PhiReader,
)
from llmendpoint_server.api.tools.framed import DeepSeekReader, KimiReader, MistralReader
from llmendpoint_server.api.tools.frames import Frame
from llmendpoint_server.api.tools.gemma import FunctionGemmaReader, GemmaReader
from llmendpoint_server.api.tools.harmony import HarmonyReader
from llmendpoint_server.api.tools.pythonic import PythonicReader
from llmendpoint_server.api.tools.reasoning import (
    GEMMA_THINK,
    GRANITE_THINK,
    KIMI_THINK,
    MISTRAL_THINK,
    THINK,
    Marks,
    PlainReader,
    ReasoningReader,
)
from llmendpoint_server.api.tools.source import NewId
from llmendpoint_server.api.tools.tagged import DeepSeekTagsReader, GlmReader, MiniMaxReader, QwenCoderReader

ALPHANUMERIC = string.ascii_letters + string.digits


def new_call_id() -> str:
    return "call_" + secrets.token_hex(12)


def short_call_id() -> str:
    """Mistral's templates refuse ids of any other form."""
    return "".join(secrets.choice(ALPHANUMERIC) for _ in range(9))


Schemas = Mapping[str, Mapping[str, Any]]
"""By function: its parameters' JSON schema."""


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes calls. `markers`: text that has to stay in an answer although it may be a special
    token; `seen`: what a template that renders this format has in it; `reader`: makes one, from the ids' source and the
    functions of the request."""

    name: str
    reader: Callable[[NewId, Schemas], AnswerReader]
    seen: tuple[str, ...]
    markers: tuple[str, ...] = ()
    new_id: NewId = field(default=new_call_id)
    frames: tuple[tuple[str, Frame], ...] = ()
    """for grammars, with what a template has that writes calls so"""

    def frame(self, template: str) -> Frame | None:
        return next((frame for seen, frame in self.frames if seen in template), None)


@dataclass(frozen=True)
class ReasoningFormat:
    name: str
    marks: Marks
    seen: tuple[str, ...]


HARMONY = "openai"
HARMONY_MARKERS = (
    "<|start|>",
    "<|channel|>",
    "<|message|>",
    "<|end|>",
    "<|call|>",
    "<|return|>",
    "<|constrain|>",
)

# The first whose text a template has is taken, so those with rarer text stand first.
TOOL_FORMATS = {format.name: format for format in (
    ToolFormat(HARMONY, lambda new_id, _: HarmonyReader(new_id), ("<|channel|>",), HARMONY_MARKERS,
        frames=(("", frames.HARMONY),)),
    ToolFormat("kimi_k2", lambda new_id, _: KimiReader(new_id), ("<|tool_calls_section_begin|>",),
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
         "<|tool_call_argument_begin|>"), frames=(("", frames.KIMI),)),
    ToolFormat("deepseek_v32", DeepSeekTagsReader, ("｜DSML｜",), ("｜DSML｜",), frames=(("", frames.DEEPSEEK_TAGS),)),
    ToolFormat("minimax_m2", MiniMaxReader, ("<minimax:tool_call>",), ("<minimax:tool_call>", "</minimax:tool_call>"),
        frames=(("", frames.MINIMAX),)),
    ToolFormat("deepseek_v3", lambda new_id, _: DeepSeekReader(new_id), ("<｜tool▁calls▁begin｜>",),
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"),
        frames=(("```json", frames.DEEPSEEK_FENCED), ("", frames.DEEPSEEK))),
    ToolFormat("gemma4", lambda new_id, _: GemmaReader(new_id), ("<|tool_call>",),
        ("<|tool_call>", "<tool_call|>", '<|"|>'),
        frames=(("", frames.GEMMA),)),
    ToolFormat("functiongemma", lambda new_id, _: FunctionGemmaReader(new_id), ("<start_function_call>",),
        ("<start_function_call>", "<end_function_call>", "<escape>"),
        frames=(("", frames.FUNCTION_GEMMA),)),
    ToolFormat("mistral", lambda new_id, _: MistralReader(new_id), ("[TOOL_CALLS]",),
        ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"), short_call_id,
        (("[ARGS]", frames.MISTRAL), ("", frames.MISTRAL_LIST))),
    ToolFormat("qwen3_coder", QwenCoderReader, ("<function=",), ("<tool_call>", "</tool_call>"),
        frames=(("", frames.QWEN_CODER),)),
    ToolFormat("glm45", GlmReader, ("<arg_key>",),
        ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"),
        frames=(("", frames.GLM),)),
    ToolFormat("phi4_mini_json", lambda new_id, _: PhiReader(new_id), ("<|/tool_call|>",),
        ("<|tool_call|>", "<|/tool_call|>"), frames=(("", frames.PHI),)),
    ToolFormat("granite", lambda new_id, _: GraniteReader(new_id), ("<|tool_call|>",), ("<|tool_call|>", "<tool_call>"),
        frames=(("", frames.GRANITE),)),
    ToolFormat("hermes", lambda new_id, _: HermesReader(new_id), ("<tool_call>",), ("<tool_call>", "</tool_call>"),
        frames=(("", frames.HERMES),)),
    ToolFormat("pythonic", lambda new_id, schemas: PythonicReader(new_id, schemas.keys()),
        ("<|python_start|>", "func_name1(params_name1"), ("<|python_start|>", "<|python_end|>"),
        frames=(("<|python_start|>", frames.PYTHONIC_MARKED), ("", frames.PYTHONIC))),
    ToolFormat("llama3_json", lambda new_id, schemas: LlamaReader(new_id, schemas.keys()),
        ("<|python_tag|>", '"parameters": dictionary'), ("<|python_tag|>",),
        frames=(("", frames.LLAMA),)),
)}  # fmt: skip

REASONING_FORMATS = {format.name: format for format in (
    ReasoningFormat("gemma4", GEMMA_THINK, ("<|channel>",)),
    ReasoningFormat("mistral", MISTRAL_THINK, ("[THINK]",)),
    ReasoningFormat("kimi", KIMI_THINK, ("◁think▷",)),
    ReasoningFormat("granite", GRANITE_THINK, ("Here is my thought process:",)),
    ReasoningFormat("think", THINK, ("<think>", "</think>")),
)}  # fmt: skip


TOOL_NAMES = {
    "deepseek_v31": "deepseek_v3",
    "llama4_pythonic": "pythonic",
    "llama4_json": "llama3_json",
    "qwen3_xml": "qwen3_coder",
}
REASONING_NAMES = dict.fromkeys(
    ("deepseek_r1", "deepseek_v3", "deepseek_v31", "deepseek_v32", "qwen3", "glm45", "kimi_k2", "minimax_m2"),
    "think",
)
"""Other names that vLLM has for the formats."""
AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class AnswerFormat:
    """What one model's answers hold. `tools` None: calls in its answers cannot be read. `frame`: for grammars that
    make calls; None: those of another form are made."""

    tools: ToolFormat | None = None
    reasoning: ReasoningFormat | None = None
    frame: Frame | None = None

    @property
    def harmony(self) -> bool:
        """Both in one: its channels."""
        return self.tools is not None and self.tools.name == HARMONY

    @property
    def plain(self) -> bool:
        """Without tools in the request, an answer is all content."""
        return self.reasoning is None and not self.harmony

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens whose text has to stay in the answer."""
        tools = self.tools.markers if self.tools else ()
        marks = self.reasoning.marks if self.reasoning else None
        return frozenset(tools + (marks.openings + marks.closings if marks else ()))

    def reader(self, schemas: Schemas, *, inside: bool = False) -> AnswerReader:
        """For one answer. `schemas`: of the functions that may be called; empty: calls are content. `inside`: the answer
        begins as reasoning, whose opening mark the prompt has."""
        if self.harmony:
            return HarmonyReader(new_call_id, calls=bool(schemas))
        rest: AnswerReader = PlainReader()
        if schemas and self.tools:
            rest = self.tools.reader(self.tools.new_id, schemas)
        if self.reasoning:
            return ReasoningReader(self.reasoning.marks, rest, inside=inside)
        return rest

    def begins_inside(self, prompt: str) -> bool:
        """Whether the prompt ends with the opening mark of reasoning."""
        end = prompt.rstrip()
        return self.reasoning is not None and any(map(end.endswith, self.reasoning.marks.openings))

    def stays_inside(self, text: str) -> bool:
        """Whether a text that the answer continues ends in its reasoning."""
        if self.reasoning is None:
            return False
        marks = self.reasoning.marks
        return max(map(text.rfind, marks.openings)) > max(map(text.rfind, marks.closings))


def detect(template: str) -> AnswerFormat:
    """The format of a model with this chat template."""
    tools = _first(TOOL_FORMATS, template)
    harmony = tools is not None and tools.name == HARMONY
    reasoning = None if harmony else _first(REASONING_FORMATS, template)
    return AnswerFormat(tools, reasoning, tools.frame(template) if tools else None)


def choose(template: str, tools: str, reasoning: str, *, shows_tools: bool) -> AnswerFormat:
    """The format by the flags. `shows_tools`: the template tells the model of the functions itself; otherwise this server
    does, and asks for the form of Hermes."""
    found = detect(template)
    by_tools = found.tools if shows_tools or found.harmony else TOOL_FORMATS["hermes"]
    if tools != AUTO:
        by_tools = TOOL_FORMATS.get(TOOL_NAMES.get(tools, tools))
    by_reasoning = found.reasoning
    if reasoning != AUTO:
        by_reasoning = REASONING_FORMATS.get(REASONING_NAMES.get(reasoning, reasoning))
    return AnswerFormat(by_tools, by_reasoning, by_tools.frame(template) if by_tools else None)


F = TypeVar("F", ToolFormat, ReasoningFormat)


def _first(formats: Mapping[str, F], template: str) -> F | None:
    return next((form for form in formats.values() if any(text in template for text in form.seen)), None)
