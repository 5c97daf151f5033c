"""The formats by name, and the reader of an answer.

A format's name is the one of vLLM's --tool-call-parser or --reasoning-parser, where it has one.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from llmendpoint_server.api.tools.call_objects import (
    GraniteReader,
    HermesReader,
    LlamaReader,
    PhiReader,
)
from llmendpoint_server.api.tools.deltas import AnswerReader, PlainReader
from llmendpoint_server.api.tools.framed import DeepSeekReader, KimiReader, MistralReader
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
    ReasoningReader,
)
from llmendpoint_server.api.tools.source import NewId
from llmendpoint_server.api.tools.tagged import GlmReader, QwenCoderReader

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
    ToolFormat(HARMONY, lambda new_id, _: HarmonyReader(new_id), ("<|channel|>",), HARMONY_MARKERS),
    ToolFormat("kimi_k2", lambda new_id, _: KimiReader(new_id), ("<|tool_calls_section_begin|>",),
        ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_end|>",
         "<|tool_call_argument_begin|>")),
    ToolFormat("deepseek_v3", lambda new_id, _: DeepSeekReader(new_id), ("<｜tool▁calls▁begin｜>",),
        ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>")),
    ToolFormat("gemma4", lambda new_id, _: GemmaReader(new_id), ("<|tool_call>",),
        ("<|tool_call>", "<tool_call|>", '<|"|>')),
    ToolFormat("functiongemma", lambda new_id, _: FunctionGemmaReader(new_id), ("<start_function_call>",),
        ("<start_function_call>", "<end_function_call>", "<escape>")),
    ToolFormat("mistral", lambda new_id, _: MistralReader(new_id), ("[TOOL_CALLS]",),
        ("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"), short_call_id),
    ToolFormat("qwen3_coder", QwenCoderReader, ("<function=",), ("<tool_call>", "</tool_call>")),
    ToolFormat("glm45", GlmReader, ("<arg_key>",),
        ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")),
    ToolFormat("phi4_mini_json", lambda new_id, _: PhiReader(new_id), ("<|/tool_call|>",),
        ("<|tool_call|>", "<|/tool_call|>")),
    ToolFormat("granite", lambda new_id, _: GraniteReader(new_id), ("<|tool_call|>",), ("<|tool_call|>", "<tool_call>")),
    ToolFormat("hermes", lambda new_id, _: HermesReader(new_id), ("<tool_call>",), ("<tool_call>", "</tool_call>")),
    ToolFormat("pythonic", lambda new_id, schemas: PythonicReader(new_id, schemas.keys()),
        ("<|python_start|>", "func_name1(params_name1"), ("<|python_start|>", "<|python_end|>")),
    ToolFormat("llama3_json", lambda new_id, schemas: LlamaReader(new_id, schemas.keys()),
        ("<|python_tag|>", '"parameters": dictionary'), ("<|python_tag|>",)),
)}  # fmt: skip

REASONING_FORMATS = {format.name: format for format in (
    ReasoningFormat("gemma4", GEMMA_THINK, ("<|channel>",)),
    ReasoningFormat("mistral", MISTRAL_THINK, ("[THINK]",)),
    ReasoningFormat("kimi", KIMI_THINK, ("◁think▷",)),
    ReasoningFormat("granite", GRANITE_THINK, ("Here is my thought process:",)),
    ReasoningFormat("think", THINK, ("<think>", "</think>")),
)}  # fmt: skip


@dataclass(frozen=True)
class AnswerFormat:
    """What one model's answers hold."""

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None

    @property
    def harmony(self) -> bool:
        """Both in one: its channels."""
        return self.tools is not None and self.tools.name == HARMONY

    @property
    def markers(self) -> frozenset[str]:
        """Special tokens whose text has to stay in the answer."""
        tools = self.tools.markers if self.tools else ()
        marks = self.reasoning.marks if self.reasoning else None
        return frozenset(tools + (marks.openings + marks.closings if marks else ()))

    def reader(self, schemas: Schemas, *, prompt: str = "") -> AnswerReader:
        """For one answer. `schemas`: of the functions that may be called; empty: calls are content."""
        if self.harmony:
            return HarmonyReader(new_call_id, calls=bool(schemas))
        rest: AnswerReader = PlainReader()
        if schemas and self.tools:
            rest = self.tools.reader(self.tools.new_id, schemas)
        if self.reasoning:
            end = prompt.rstrip()
            inside = any(end.endswith(opening) for opening in self.reasoning.marks.openings)
            return ReasoningReader(self.reasoning.marks, rest, inside=inside)
        return rest


def detect(template: str) -> AnswerFormat:
    """The format of a model with this chat template."""

    def first(formats: Mapping[str, Any]) -> Any:
        return next((form for form in formats.values() if any(text in template for text in form.seen)), None)

    tools = first(TOOL_FORMATS)
    harmony = tools is not None and tools.name == HARMONY
    return AnswerFormat(tools, None if harmony else first(REASONING_FORMATS))
