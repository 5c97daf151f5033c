"""docs/concepts/tools.md: whatever a body asks for, and whatever form the model's calls have, it is understood or refused."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llmendpoint_server import guidance
from llmendpoint_server.api.chat import read_chat
from llmendpoint_server.api.schemas import ChatBody, parse_body
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.api.tools.readers import REASONING_FORMATS, TOOL_FORMATS, AnswerFormat
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.weights.locate import resolve_model
from tests.fuzz import nested
from tests.fuzz.bodies import VALUES, written
from tests.fuzz.openapi import CHAT

DEMO = resolve_model("embedded://demo")
TOKENIZER = ModelTokenizer(DEMO)
MATCHING = guidance.make_tokenizer(DEMO, 1761, [2])
BODIES = st.one_of(nested.changed(VALUES), nested.grammars(VALUES)).filter(lambda one: one[0] == CHAT)


@pytest.mark.parametrize("name", sorted(TOOL_FORMATS))
@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(asked=BODIES, thinks=st.booleans())
def test_a_body_is_understood_or_refused_in_every_form(
    name: str, asked: tuple[str, dict[str, object]], thinks: bool
) -> None:
    tools = TOOL_FORMATS[name]
    form = AnswerFormat(tools, REASONING_FORMATS["think"] if thinks else None, tools.frame(""))
    refusal: Exception | None = None
    try:
        body = parse_body(ChatBody, written(asked[1]).encode("utf-8", "replace"))
        chat = read_chat(body, form, TOKENIZER, 2.0)
        if chat.grammar is not None:
            guidance.check(MATCHING, chat.grammar.grammar)
        if chat.reader is not None:
            chat.reader().finish()
    except (InvalidRequest, guidance.BadGrammar) as error:
        refusal = error
    assert refusal is None or str(refusal)
