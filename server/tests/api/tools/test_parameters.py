"""docs/concepts/tools.md: where arguments are not JSON, too, what a grammar lets a model write follows the function's schema."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest
from llguidance import LLTokenizer
from tokenizers import Tokenizer

from llmendpoint_server import guidance
from llmendpoint_server.api.tools.asked import Function, Tools
from llmendpoint_server.api.tools.parameters import can_hold
from llmendpoint_server.api.tools.plan import Plan, plan
from llmendpoint_server.api.tools.readers import TOOL_FORMATS, AnswerFormat
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.tools.answers import collect, read

DEMO = resolve_model("embedded://demo")
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
FORMS = sorted({form.name for form in TOOL_FORMATS.values() for _, frame in form.frames if frame.parameters})
COLOURS = {"enum": ["red", "dark green", "é"]}
PROPERTIES: dict[str, Any] = {
    "word": {"type": "string", "maxLength": 5},
    "longer": {"type": "string", "minLength": 2, "maxLength": 4},
    "colour": {"type": "string", **COLOURS},
    "any_colour": COLOURS,
    "code": {"type": "string", "pattern": "^[a-z]{2}(-[0-9]){1,2}$"},
    "one": {"type": "string", "const": "a < b"},
    "count": {"type": "integer", "minimum": -3, "maximum": 12},
    "sure": {"type": "boolean"},
    "nothing": {"type": "null"},
    "sizes": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}, "maxItems": 2},
    "maybe": {"anyOf": [{"type": "string", "maxLength": 2}, {"type": "null"}]},
    "inner": {
        "type": "object", "properties": {"a": {"type": "boolean"}, "b": {"$ref": "#/$defs/few"}}, "required": ["b"],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def matching() -> LLTokenizer:
    return guidance.make_tokenizer(DEMO, TOKENIZER.get_vocab_size(), [2])


def drawn(chance: random.Random) -> dict[str, Any]:
    names = chance.sample(sorted(PROPERTIES), chance.randint(0, 5))
    return {
        "type": "object",
        "properties": {name: PROPERTIES[name] for name in names},
        "required": [name for name in names if chance.random() < 0.6],
        "$defs": {"few": {"type": "string", "maxLength": 3}},
    }


def form_of(name: str) -> AnswerFormat:
    form = TOOL_FORMATS[name]
    return AnswerFormat(form, None, form.frame(""))


def wander(planned: Plan, matching: LLTokenizer, chance: random.Random) -> str | None:
    """A text of tokens that the grammar allows, drawn without a model. None: it goes on for too long."""
    assert planned.grammar is not None
    matcher = guidance.compiled(matching, planned.grammar.grammar)
    tokens: list[int] = []
    while not matcher.is_stopped() and len(tokens) < 400:
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [token for token in range(TOKENIZER.get_vocab_size()) if mask >> token & 1]
        token = 2 if 2 in allowed else chance.choice(allowed)
        assert matcher.consume_token(token), matcher.get_error()
        if token == 2:
            break
        tokens.append(token)
    return TOKENIZER.decode(tokens) if matcher.is_accepting() or matcher.is_stopped() else None


@pytest.mark.parametrize("name", FORMS)
def test_what_the_grammar_allows_is_read_as_arguments_that_follow_the_schema(
    name: str, matching: LLTokenizer
) -> None:
    read_back = 0
    for seed in range(20):
        chance = random.Random(seed)
        schema = drawn(chance)
        functions = (Function("set_it", json.dumps(schema), strict=True, field="tools[0].function"),)
        asked = Tools(functions, [], must=True, parallel=False)
        planned = plan(form_of(name), asked, None, lambda _: None, inside=False)
        assert planned.form.tools is TOOL_FORMATS[name], schema
        text = wander(planned, matching, chance)
        if text is None:
            continue
        [call] = collect(read(planned.form.reader(asked.schemas()), [text])).calls
        assert call.name == "set_it"
        closed = {**schema, "additionalProperties": False}
        jsonschema.validate(json.loads(call.arguments), closed, jsonschema.Draft202012Validator)
        read_back += 1
    assert read_back > 10


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"type": "integer"}}, "anyOf": [{"required": ["a"]}]},
        {"properties": {"a": {"type": "integer"}}, "additionalProperties": True},
        {"properties": {"a": {"type": "integer"}}, "required": ["b"]},
        {"properties": {"a": {"type": "integer"}}, "required": [["a"]]},
        {"properties": {"a b": {"type": "integer"}, "<a>": {}, "x=": {}, 'a"': {}}},
        {"properties": {"a": {"$ref": "#"}}},
    ],
)
def test_a_demanded_call_that_the_form_cannot_hold_is_in_the_form_of_hermes(name: str, schema: Any) -> None:
    form = form_of(name)
    assert form.frame is not None
    assert not can_hold("f", schema, form.frame)
    function = Function("f", json.dumps(schema), strict=False, field="tools[0].function")
    planned = plan(form, Tools((function,), [], True, False), None, lambda _: None, inside=False)
    assert planned.form.tools is TOOL_FORMATS["hermes"]


@pytest.mark.parametrize("name", ["qwen3_coder", "glm45", "gemma4"])
@pytest.mark.parametrize(
    "about",
    [
        {"format": "date"},
        {"pattern": "[a-z]"},
        {"pattern": "^a|b$"},
        {"pattern": "^(?=a)a$"},
        {"enum": ["a", 1]},
        {"enum": []},
        {"minLength": "2"},
        {"maxLength": 2, "pattern": "^a*$"},
        {"const": '</parameter> <|"|> </arg_value>\n</parameter>\n'},
    ],
)
def test_a_string_that_cannot_be_held_as_raw_text_is_known(name: str, about: Any) -> None:
    frame = form_of(name).frame
    assert frame is not None
    assert can_hold("f", {"properties": {"a": {"type": "string"}}}, frame)
    assert not can_hold("f", {"properties": {"a": {"type": "string", **about}}}, frame)


@pytest.mark.parametrize("name", FORMS)
def test_any_arguments_are_read_back(name: str, matching: LLTokenizer) -> None:
    """Of a function that says nothing of them."""
    function = Function("f", '{"type": "object"}', strict=False, field="tools[0].function")
    asked = Tools((function,), [], must=True, parallel=False)
    planned = plan(form_of(name), asked, None, lambda _: None, inside=False)
    found = 0
    for seed in range(8):
        text = wander(planned, matching, random.Random(seed))
        if text is not None:
            [call] = collect(read(planned.form.reader(asked.schemas()), [text])).calls
            assert isinstance(json.loads(call.arguments), dict)
            found += 1
    assert found
