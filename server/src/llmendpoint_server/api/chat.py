"""From a chat's body to its prompt, and to what reads the answer: tools, reasoning, and the grammar that holds both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llmendpoint_server.api.chat_fields import chat_options
from llmendpoint_server.api.chat_options import joined
from llmendpoint_server.api.deltas import AnswerReader
from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.interfaces import Tokenizer
from llmendpoint_server.api.messages import for_template
from llmendpoint_server.api.schemas import ChatBody
from llmendpoint_server.api.structural_tags import as_grammar
from llmendpoint_server.api.tools.asked import read_tools
from llmendpoint_server.api.tools.plan import plan
from llmendpoint_server.api.tools.readers import AnswerFormat, Schemas
from llmendpoint_server.api.tools.reasoning import FirstCallReader, SilentReader
from llmendpoint_server.errors import InvalidRequest


@dataclass(frozen=True)
class Chat:
    """`reader`: makes what reads one answer; None: it is all text. `markers`: special tokens whose text the reader needs."""

    prompt: str
    grammar: Asked | None
    reader: Callable[[], AnswerReader] | None = None
    markers: frozenset[str] = frozenset()


def read_chat(body: ChatBody, form: AnswerFormat, tokenizer: Tokenizer, seconds: float) -> Chat:
    """Raises InvalidRequest, or TooSlow if the prompt is not rendered in so many seconds and they are fewer than the limit."""
    tools = read_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
    if tools is not None and form.tools is None:
        raise InvalidRequest(
            "tools are not supported with this model: its chat template writes calls in a form that this server does not "
            "know. If it is one of --tool-call-parser, start the server with it.",
            param="tools",
        )
    options = chat_options(body, tools.shown if tools else None)
    messages = for_template(body.messages)
    prompt = tokenizer.render_chat(messages, options, seconds)
    asked = body.grammar()
    if tools is None and form.plain:
        return Chat(prompt, as_grammar(asked, tokenizer.special_id))
    inside = (
        form.stays_inside(joined(messages[-1]["content"]))
        if options.continue_final
        else form.begins_inside(prompt)
    )
    planned = plan(form, tools, asked, tokenizer.special_id, inside=inside)
    schemas = tools.schemas() if tools else {}
    silent = body.include_reasoning is False
    first_only = tools is not None and not tools.parallel
    reader = partial(_make_reader, planned.form, schemas, inside, silent, first_only)
    return Chat(prompt, planned.grammar, reader, planned.form.markers)


def _make_reader(
    form: AnswerFormat, schemas: Schemas, inside: bool, silent: bool, first_only: bool
) -> AnswerReader:
    reader = form.reader(schemas, inside=inside)
    if silent:
        reader = SilentReader(reader)
    return FirstCallReader(reader) if first_only else reader
