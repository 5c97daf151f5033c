"""docs/concepts/structured-output.md: vLLM's structural tags hold the parts of an answer that stand between their tags."""

from __future__ import annotations

import json
from typing import Any

import pytest
from llguidance import LLTokenizer
from tokenizers import Tokenizer

from llmendpoint_server import guidance
from llmendpoint_server.api.structural_tags import as_grammar, read
from llmendpoint_server.api.tools.plan import plan
from llmendpoint_server.api.tools.readers import REASONING_FORMATS, AnswerFormat
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.weights.locate import resolve_model

DEMO = resolve_model("embedded://demo")
TOKENIZER = Tokenizer.from_file(str(DEMO / "tokenizer.json"))
NUMBER = {"type": "json_schema", "json_schema": {"type": "integer"}}
TEXT, WORD = {"type": "any_text"}, {"type": "regex", "pattern": "[a-z]+"}


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: str, content: Any, end: str | list[str]) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


TAGS = [tag("<f=a>", NUMBER, "</f>"), tag("<f=b>", WORD, "</f>"), tag("[c]", TEXT, "[/c]")]
TRIGGERED = {"type": "triggered_tags", "triggers": ["<f=", "[c"], "tags": TAGS}
LIST = {"type": "tags_with_separator", "tags": TAGS[:2], "separator": ","}
LEGACY = {
    "structures": [
        {"begin": "<f=a>", "schema": {"properties": {"x": {"type": "integer"}}, "required": ["x"]}, "end": "</f>"},
        {"begin": "<f=b>", "schema": True, "end": "</f>"},
    ],
    "triggers": ["<f="],
}  # fmt: skip


@pytest.fixture(scope="module")
def matching() -> LLTokenizer:
    return guidance.make_tokenizer(DEMO, TOKENIZER.get_vocab_size(), [2])


def follows(matching: LLTokenizer, grammar: Grammar, text: str) -> bool:
    matcher = guidance.compiled(matching, grammar)
    ids = TOKENIZER.encode(text, add_special_tokens=False).ids
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def sequence(*elements: Any) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        ({"format": const("yes")}, ["yes"], ["no", "yes."]),
        ({"format": {"type": "or", "elements": [const("a"), NUMBER]}}, ["a", "12"], ["b"]),
        ({"format": sequence(const("a"), TEXT, const("b"), const("c"), NUMBER)}, ["axbc1", "abc2"], ["axb1", "axbcx"]),
        ({"format": sequence(NUMBER, const(" "), TEXT)}, ["1 ", "1 more\nlines"], ["a b"]),
        ({"format": sequence(WORD, const("!"))}, ["ab!"], ["!", "1!"]),
        ({"format": tag("<t>", sequence(const("n="), NUMBER), "</t>")}, ["<t>n=5</t>"], ["<t>5</t>"]),
        ({"format": TRIGGERED}, ["", "free", "so <f=a>1</f> and <f=b>x</f>.", "[c]any[/c]"], ["<f=a>x</f>", "<f=z>", "[cd"]),
        ({"format": TRIGGERED | {"at_least_one": True}}, ["<f=a>1</f>", "a <f=b>x</f> z"], ["", "free"]),
        ({"format": TRIGGERED | {"stop_after_first": True}}, ["", "free", "a <f=a>1</f>"], ["<f=a>1</f> more"]),
        (
            {"format": TRIGGERED | {"stop_after_first": True, "at_least_one": True}},
            ["a <f=a>1</f>"], ["free", "<f=a>1</f> more"],
        ),
        ({"format": LIST}, ["", "<f=a>1</f>", "<f=a>1</f>,<f=b>x</f>"], ["<f=a>1</f><f=b>x</f>", "x"]),
        ({"format": LIST | {"at_least_one": True, "stop_after_first": True}}, ["<f=b>x</f>"], ["", "<f=a>1</f>,<f=a>1</f>"]),
        ({"format": tag("<t>", NUMBER, ["</t>", "\n"])}, ["<t>5</t>", "<t>5\n"], ["<t>5", "<t>5</t>\n"]),
        ({"format": tag("<t>", TEXT, ["</t>", "<t>"])}, ["<t>a</t>", "<t>a<t>"], ["<t>a</t>b<t>", "<t>a<t>b</t>", "<t>a"]),
        ({"format": tag("<t>", WORD, ["!", "?"])}, ["<t>a!", "<t>b?"], ["<t>a", "<t>a!?", "<t>?"]),
        (
            {"format": sequence(tag("<t>", sequence(NUMBER, TEXT), ["</t>", ";"]), const("."))},
            ["<t>1 a</t>.", "<t>1 a;."], ["<t>1 a;", "<t>1 a;.</t>.", "<t>a;."],
        ),
        (
            {"format": TRIGGERED | {"tags": [tag("<f=a>", NUMBER, ["</f>", "/>"]), *TAGS[1:]]}},
            ["so <f=a>1/> and <f=a>2</f>."], ["<f=a>1<"],
        ),
        (LEGACY, ["", 'I: <f=a>{"x": 1}</f> so <f=b>[1]</f>'], ["<f=a>{}</f>", '<f=a>{"x": 1, "y": 2}</f>', "<f=c>"]),
    ],
)  # fmt: skip
def test_each_part_holds_what_it_says(
    asked: Any, right: list[str], wrong: list[str], matching: LLTokenizer
) -> None:
    made = as_grammar(read("response_format", json.dumps(asked)), lambda _: None)
    assert made is not None
    for text in right:
        assert follows(matching, made.grammar, text), text
    for text in wrong:
        assert not follows(matching, made.grammar, text), text


def test_a_tag_that_is_a_special_token_is_written_as_one() -> None:
    asked = read("response_format", json.dumps({"format": tag("<f>\n", NUMBER, "[END]")}))
    made = as_grammar(asked, {"<f>": 7, "[END]": 8}.get)
    assert made is not None
    assert "<[7]>" in made.grammar.text
    assert "<[8]>" in made.grammar.text


def test_a_structural_tag_comes_behind_the_reasoning(matching: LLTokenizer) -> None:
    asked = read("response_format", json.dumps({"format": TRIGGERED}))
    form = AnswerFormat(None, REASONING_FORMATS["think"])
    planned = plan(form, None, asked, lambda _: None, inside=True)
    assert planned.grammar is not None
    assert follows(matching, planned.grammar.grammar, "Hm <f=?\n</think>\n\nSo <f=a>1</f>")
    assert not follows(matching, planned.grammar.grammar, "Hm\n</think>\n\nSo <f=a>x</f>")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "either format"),
        ({"format": TRIGGERED, **LEGACY}, "either format"),
        ({"format": {"type": "qwen_xml_parameter", "json_schema": {}}}, "tags_with_separator"),
        ({"format": sequence()}, "empty"),
        (
            {"format": tag("a long beginning", {"type": "json_schema", "json_schema": {"$ref": "#"}}, "e")},
            "leads to itself",
        ),
        ({"format": sequence(TEXT, NUMBER)}, "any_text must be the last part"),
        ({"format": TRIGGERED | {"triggers": ["<f="]}}, "none of the triggers"),
        ({"format": TRIGGERED | {"triggers": []}}, "empty"),
        ({"format": tag("<t>", NUMBER, [])}, r"length >= 1 - at `\$.format.end`"),
        ({"format": tag("<t>", NUMBER, ["a"] * 17)}, r"length <= 16 - at `\$.format.end`"),
        ({"format": tag("<t>", NUMBER, 5)}, r"\$.format.end"),
        ({"format": tag("<t>", tag("<u>", TEXT, [*"abcde"]), [*"fghi"])}, "more than 16 ways"),
        ({"format": sequence(tag("<t>", TEXT, ["a", ""]), NUMBER)}, "any_text must be the last part"),
        ({"format": sequence(*[const("a")] * 1, *[NUMBER] * 1001)}, "more than 1000 parts"),
    ],
)
def test_what_cannot_be_written_is_refused_with_its_reason(asked: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as caught:
        read("response_format", json.dumps(asked))
    assert caught.value.param == "response_format"


def test_deep_nesting_is_refused() -> None:
    part: Any = NUMBER
    for _ in range(60):
        part = sequence(part)
    with pytest.raises(InvalidRequest, match="32 deep"):
        read("response_format", json.dumps({"format": part}))
    deep = '{"type":"sequence","elements":[' * 2000 + "]}" * 2000
    with pytest.raises(InvalidRequest):
        read("response_format", '{"format":' + deep + "}")
