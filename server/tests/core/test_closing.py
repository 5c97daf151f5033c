"""docs/concepts/structured-output.md: an object has the properties that its schema names, and no others, unless it says so."""

from __future__ import annotations

import contextlib
import copy
import json
import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLTokenizer
from tokenizers import Tokenizer

from llmendpoint_server import guidance
from llmendpoint_server.core.closing import closed
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.weights.locate import resolve_model

DEMO = resolve_model("embedded://demo")
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
A: Any = {"type": "object", "properties": {"a": {"type": "integer"}}}
B: Any = {"properties": {"b": {"type": "integer"}}, "required": ["b"]}
C: Any = {"properties": {"c": {"type": "integer"}}, "required": ["c"]}
DEFS = {"A": A}
REF = {"$ref": "#/$defs/A"}


@pytest.fixture(scope="module")
def matching() -> LLTokenizer:
    return guidance.make_tokenizer(DEMO, TOKENIZER.get_vocab_size(), [2])


def takes(matching: LLTokenizer, schema: Any, text: str) -> bool:
    matcher = guidance.compiled(matching, Grammar("json_schema", json.dumps(schema), ""))
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@pytest.mark.parametrize(
    ("schema", "right", "wrong"),
    [
        (A, '{"a":1}', '{"a":1,"x":1}'),
        ({"type": "object", "properties": {}}, "{}", '{"x":1}'),
        ({"type": "object", "patternProperties": {"^a": {"type": "integer"}}}, '{"a1":1}', '{"x":1}'),
        ({"type": "array", "items": A}, '[{"a":1}]', '[{"a":1,"x":1}]'),
        ({"type": "array", "prefixItems": [A], "items": False}, '[{"a":1}]', '[{"a":1,"x":1}]'),
        ({"type": "object", "additionalProperties": A}, '{"x":{"a":1}}', '{"x":{"a":1,"x":1}}'),
        ({"properties": {"o": A}, "required": ["o"]}, '{"o":{"a":1}}', '{"o":{"a":1,"x":1}}'),
        ({**REF, "$defs": DEFS}, '{"a":1}', '{"a":1,"x":1}'),
        ({**REF, "description": "an A", "$defs": DEFS}, '{"a":1}', '{"a":1,"x":1}'),
        ({"allOf": [A, B]}, '{"a":1,"b":1}', '{"a":1,"b":1,"x":1}'),
        ({"allOf": [REF, B], "$defs": DEFS}, '{"a":1,"b":1}', '{"a":1,"b":1,"x":1}'),
        ({"allOf": [REF], "title": "as pydantic wrote it", "$defs": DEFS}, '{"a":1}', '{"a":1,"x":1}'),
        ({**REF, **B, "$defs": DEFS}, '{"a":1,"b":1}', '{"a":1,"b":1,"x":1}'),
        ({"type": "object", "anyOf": [B, C]}, '{"b":1}', '{"b":1,"x":1}'),
        ({**A, "anyOf": [B, C]}, '{"a":1,"c":1}', '{"a":1,"c":1,"x":1}'),
        ({"anyOf": [{"allOf": [A, B]}, {"type": "null"}]}, '{"a":1,"b":1}', '{"b":1,"x":1}'),
        ({"properties": {"o": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, '{"o":{"o":null}}', '{"o":{"x":1}}'),
        ({"allOf": [A, B], "properties": {"a": {"maximum": 5}}}, '{"a":5,"b":1}', '{"a":6,"b":1}'),
    ],
)  # fmt: skip
def test_an_object_has_no_property_that_its_schema_does_not_name(
    schema: Any, right: str, wrong: str, matching: LLTokenizer
) -> None:
    jsonschema.validate(json.loads(right), schema)
    assert takes(matching, schema, right)
    assert not takes(matching, schema, wrong)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"type": "object"}, '{"x":1}'),
        ({"type": "object", "required": ["x"]}, '{"x":1}'),
        ({**A, "additionalProperties": True}, '{"a":1,"x":1}'),
        ({**A, "additionalProperties": {"type": "string"}}, '{"a":1,"x":"y"}'),
        ({**A, "required": ["x"]}, '{"x":1}'),
        ({"allOf": [{**A, "additionalProperties": True}, B]}, '{"b":1,"x":1}'),
    ],
)
def test_an_object_that_says_so_or_that_must_have_more_stays_open(
    schema: Any, text: str, matching: LLTokenizer
) -> None:
    assert takes(matching, schema, text)


def test_a_definition_is_closed_for_one_and_joined_by_another(matching: LLTokenizer) -> None:
    schema = {
        "type": "object", "properties": {"one": REF, "other": {"allOf": [REF, B]}}, "required": ["one", "other"], "$defs": DEFS,
    }  # fmt: skip
    assert takes(matching, schema, '{"one":{"a":1},"other":{"a":1,"b":1}}')
    assert not takes(matching, schema, '{"one":{"x":1},"other":{"a":1,"b":1}}')
    assert not takes(matching, schema, '{"one":{"a":1},"other":{"a":1,"b":1,"x":1}}')


SCHEMAS = st.recursive(
    st.one_of(st.booleans(), st.just({"type": "integer"}), st.just(REF), st.just({"$ref": "#"}), st.just([])),
    lambda inner: st.dictionaries(
        st.sampled_from(
            ["properties", "allOf", "anyOf", "items", "$ref", "required", "$defs", "additionalProperties", "A", "x"]
        ),
        st.one_of(inner, st.lists(inner, max_size=3), st.sampled_from(["A", "#/$defs/A", "#/allOf/0", "#"])),
        max_size=4,
    ),
    max_leaves=20,
)  # fmt: skip


@given(schema=SCHEMAS)
def test_whatever_is_called_a_schema_is_walked_and_not_changed(schema: Any) -> None:
    before = copy.deepcopy(schema)
    with contextlib.suppress(InvalidRequest):
        closed(schema)
    assert schema == before


def test_what_would_grow_without_a_bound_is_refused_at_once() -> None:
    links = {
        f"n{at}": {"allOf": [{"$ref": f"#/$defs/n{at + 1}"}, {"properties": {f"p{at}": {}}}]}
        for at in range(800)
    }
    began = time.process_time()
    with pytest.raises(InvalidRequest, match="joins too many"):
        closed({"$ref": "#/$defs/n0", "$defs": links})
    assert time.process_time() - began < 1
    deep: Any = {}
    for _ in range(100_000):
        deep = {"items": deep}
    assert closed(deep)["items"]
    wide: Any = {"$defs": {f"n{at}": {"anyOf": [{"$ref": f"#/$defs/n{at + 1}"}] * 3} for at in range(60)}}
    deep = {"$ref": "#/$defs/n0"}
    for _ in range(5_000):
        deep = {"allOf": [deep]}
    began = time.process_time()
    closed({"properties": {"a": {"$ref": "#/$defs/n0"}, "b": {"$ref": "#/$defs/n1"}}, **wide})
    closed({"$ref": "#/$defs/deep", "$defs": {"deep": deep}})
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"anyOf": [{"$ref": "#"}, {"allOf": [{"type": "object"}, {"$ref": "#"}]}]},
        {
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        },
    ],
)
def test_a_reference_that_leads_to_itself_alone_is_refused(schema: Any) -> None:
    """An answer that reached it could not go on."""
    with pytest.raises(InvalidRequest, match="leads to itself"):
        closed(schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}, {"type": "null"}]},
         "b": {"$ref": "#/$defs/a"}}},
        {"properties": {"next": {"$ref": "#"}}},
        {"$ref": "#/$defs/nowhere"},
    ],
)  # fmt: skip
def test_a_reference_that_may_lead_elsewhere_is_not(schema: Any) -> None:
    closed(schema)


def held(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


NODE: dict[str, Any] = {"$defs": {"node": held({"$ref": "#/$defs/node"})}}
LINK = {"$ref": "#/$defs/node"}


@pytest.mark.parametrize(
    ("schema", "left"),
    [
        (held(LINK), {"a": False}),
        (held({"type": "array", "items": LINK, "minItems": 1}), {"a": {"type": "array", "items": False, "minItems": 1}}),
        ({"properties": {"a": LINK, "b": {}}}, {"a": False, "b": {}}),
        ({"properties": {"a": {"anyOf": [LINK, {"type": "null"}]}}}, {"a": {"anyOf": [False, {"type": "null"}]}}),
    ],
)  # fmt: skip
def test_a_reference_that_no_value_can_finish_becomes_false(schema: Any, left: Any) -> None:
    assert closed(schema | NODE)["properties"] == left


@pytest.mark.parametrize(
    "schema",
    [
        held({"$ref": "#"}),
        held({"type": "array", "prefixItems": [{}, {"$ref": "#"}], "minItems": 2}),
        {"type": "object", "additionalProperties": {"$ref": "#"}, "required": ["a"]},
        {"anyOf": [held({"$ref": "#"}), {"allOf": [held({"$ref": "#"})]}]},
        {"$ref": "#/$defs/a", "$defs": {"a": held({"$ref": "#/$defs/b"}), "b": held({"$ref": "#/$defs/a"})}},
    ],
)
def test_a_schema_that_no_value_can_finish_is_refused(schema: Any, matching: LLTokenizer) -> None:
    with pytest.raises((guidance.BadGrammar, InvalidRequest), match=r"No value can finish it|nsatisfiable"):
        guidance.check(matching, Grammar("json_schema", json.dumps(schema)))


@pytest.mark.parametrize(
    "schema",
    [
        held({"anyOf": [{"$ref": "#"}, {"type": "null"}]}),
        held({"type": "array", "items": {"$ref": "#"}}),
        held({"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]}),
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"]},
    ],
)
def test_a_schema_that_some_value_can_finish_keeps_its_references(schema: Any) -> None:
    before = json.dumps(schema).count("$ref")
    assert json.dumps(closed(schema)).count("$ref") == before


def test_long_chains_of_references_are_followed_in_bounded_time() -> None:
    ahead = {f"n{at}": held({"$ref": f"#/$defs/n{at + 1}"}) for at in range(2_000)}
    began = time.process_time()
    closed({"$ref": "#/$defs/n0", "$defs": ahead})
    closed({"$ref": "#/$defs/n0", "$defs": dict(reversed(ahead.items()))})
    assert time.process_time() - began < 2
