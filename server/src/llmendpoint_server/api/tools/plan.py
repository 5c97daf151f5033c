"""What an answer to one chat may be: the form in which it is read, and the grammar that it follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.structural_tags import as_grammar, marks
from llmendpoint_server.api.tools import grammars
from llmendpoint_server.api.tools.asked import Tools
from llmendpoint_server.api.tools.frames import HERMES, Frame
from llmendpoint_server.api.tools.grammars import HARMONY_THOUGHTS, Thoughts
from llmendpoint_server.api.tools.parameters import can_hold
from llmendpoint_server.api.tools.readers import TOOL_FORMATS, AnswerFormat
from llmendpoint_server.api.tools.writer import TokenOf, Writer
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.errors import InvalidRequest

FINAL_CHANNEL = "<|channel|>final<|message|>"
JSON_SCHEMA = "json_schema"


@dataclass(frozen=True)
class Plan:
    form: AnswerFormat
    grammar: Asked | None


def plan(
    form: AnswerFormat, tools: Tools | None, asked: Asked | None, token_of: TokenOf, *, inside: bool
) -> Plan:
    """`asked`: the caller's own grammar, for what is no call. `inside`: the answer begins as reasoning. Raises InvalidRequest."""
    if tools is not None and (tools.must or asked is not None):
        return _held(form, tools, asked, token_of, inside=inside)
    if tools is not None and form.frame is not None and not tools.free:
        functions, frame = tools.functions, form.frame
        writer, thoughts = _writer(form, token_of), _thoughts(form, inside=inside)
        if form.harmony:
            return Plan(
                form, _asked(lambda: grammars.may_call_in_channels(functions, frame, writer), "tools")
            )
        return Plan(form, _asked(lambda: grammars.may_call(functions, frame, writer, thoughts), "tools"))
    if asked is None or form.plain:
        return Plan(form, as_grammar(asked, token_of))
    if (
        asked.grammar.kind == "lark"
    ):  # its own start cannot come behind another text, so that there is no reasoning
        return Plan(form if form.harmony else replace(form, reasoning=None), asked)
    writer, thoughts = _writer(form, token_of, marks(asked.grammar)), _thoughts(form, inside=inside)
    grammar = asked.grammar
    return Plan(form, _asked(lambda: grammars.follow(grammar, writer, thoughts, _before(form)), asked.field))


def _held(form: AnswerFormat, tools: Tools, asked: Asked | None, token_of: TokenOf, *, inside: bool) -> Plan:
    """Calls that the grammar makes. A form that cannot hold a schema gives way to that of Hermes."""
    frame: Frame | None = form.frame
    if frame is None or not all(can_hold(one.name, one.schema(), frame) for one in tools.functions):
        form, frame = replace(form, tools=TOOL_FORMATS["hermes"], frame=HERMES), HERMES
    writer, thoughts, functions = _writer(form, token_of), _thoughts(form, inside=inside), tools.functions
    if tools.must:
        return Plan(
            form,
            _asked(
                lambda: grammars.must_call(functions, frame, writer, thoughts, parallel=tools.parallel),
                "tools",
            ),
        )
    assert asked is not None
    if asked.grammar.kind != JSON_SCHEMA:
        raise InvalidRequest(
            f"{asked.field} and tools exclude each other, unless tool_choice is 'none': beside calls an answer can follow a "
            "JSON schema alone.",
            param=asked.field,
        )
    grammar = asked.grammar
    return Plan(
        form,
        _asked(
            lambda: grammars.call_or_follow(functions, frame, writer, thoughts, grammar, _before(form)),
            asked.field,
        ),
    )


def _writer(form: AnswerFormat, token_of: TokenOf, more: Sequence[str] = ()) -> Writer:
    return Writer(token_of, sorted(form.markers.union(more)))


def _thoughts(form: AnswerFormat, *, inside: bool) -> Thoughts | None:
    if form.harmony:
        return HARMONY_THOUGHTS
    return Thoughts.of(form.reasoning.marks, inside=inside) if form.reasoning else None


def _before(form: AnswerFormat) -> str:
    return FINAL_CHANNEL if form.harmony else ""


def _asked(make: Callable[[], Grammar], field: str) -> Asked:
    try:
        return Asked(make(), field)
    except InvalidRequest as error:
        raise InvalidRequest(error.message, param=field) from None
    except RecursionError:
        raise InvalidRequest(f"A JSON schema in {field} is nested too deeply.", param=field) from None
