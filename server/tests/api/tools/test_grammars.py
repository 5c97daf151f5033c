"""docs/concepts/tools.md: a call that a request demands follows its function's schema, in the form that the model writes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llguidance import LLTokenizer
from tokenizers import Tokenizer

from llmendpoint_server import guidance
from llmendpoint_server.api.grammars import Asked
from llmendpoint_server.api.tools.asked import Function, Tools
from llmendpoint_server.api.tools.frames import COUNT, IS_TEXT, KEY, NAME, Parameters
from llmendpoint_server.api.tools.plan import Plan, plan
from llmendpoint_server.api.tools.readers import REASONING_FORMATS, TOOL_FORMATS, AnswerFormat
from llmendpoint_server.core.grammar import Grammar
from llmendpoint_server.errors import InvalidRequest
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.tools.answers import collect, read

DEMO = resolve_model("embedded://demo")
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"$ref": "#/$defs/days"}},
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"days": {"type": "integer", "minimum": 1}},
}
FUNCTIONS = (
    Function("get_weather", json.dumps(CITY), strict=True, field="tools[0].function"),
    Function("now", '{"type": "object"}', strict=False, field="tools[1].function"),
)
FRAMES = [(form.name, seen) for form in TOOL_FORMATS.values() for seen, _ in form.frames]
MARKED = [(form.name, seen) for form in TOOL_FORMATS.values() for seen, frame in form.frames if frame.marker]


def tools(*, must: bool, parallel: bool = True) -> Tools:
    return Tools(FUNCTIONS, [], must, parallel)


def form_of(name: str, seen: str = "", reasoning: str | None = None) -> AnswerFormat:
    form = TOOL_FORMATS[name]
    return AnswerFormat(form, REASONING_FORMATS[reasoning] if reasoning else None, form.frame(seen))


def call(form: AnswerFormat, name: str, arguments: str) -> str:
    frame = form.frame
    assert frame is not None
    if frame.parameters is not None:
        arguments = one_by_one(frame.parameters, json.loads(arguments))
    return frame.before.replace(NAME, name).replace(COUNT, "0") + arguments + frame.after


def one_by_one(form: Parameters, arguments: dict[str, Any]) -> str:
    def written(value: Any) -> str:
        raw = isinstance(value, str) and form.quote is not None
        return form.quote[0] + value + form.quote[1] if raw and form.quote else json.dumps(value)

    return form.between.join(
        form.before.replace(KEY, key).replace(IS_TEXT, json.dumps(isinstance(value, str)))
        + written(value)
        + form.after
        for key, value in arguments.items()
    )


def calls(form: AnswerFormat, *made: tuple[str, str]) -> str:
    frame = form.frame
    assert frame is not None
    between = frame.between or ""
    return frame.first + between.join(call(form, *one) for one in made) + frame.last


@pytest.fixture(scope="module", params=["as text", "as special tokens"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model, once with all markers as special tokens."""
    if request.param == "as text":
        return DEMO
    folder = Path(shutil.copytree(DEMO, tmp_path_factory.mktemp("special") / "model"))
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    size = len(content["model"]["vocab"]) + 3
    forms = [form_of(name, reasoning=reasoning) for name in TOOL_FORMATS for reasoning in REASONING_FORMATS]
    for at, text in enumerate(sorted({marker for form in forms for marker in form.markers})):
        content["added_tokens"].append(
            {"id": size + at, "content": text, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}
        )  # fmt: skip
    path.write_text(json.dumps(content))
    return folder


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


@pytest.fixture(scope="module")
def token_of(tokenizer: Tokenizer) -> Callable[[str], int | None]:
    special = {
        token.content: at for at, token in tokenizer.get_added_tokens_decoder().items() if token.special
    }
    return special.get


@pytest.fixture(scope="module")
def follows(model: Path, tokenizer: Tokenizer) -> Callable[[Plan, str], bool]:
    matching: LLTokenizer = guidance.make_tokenizer(model, tokenizer.get_vocab_size(), [2])

    def check(planned: Plan, text: str) -> bool:
        assert planned.grammar is not None
        matcher = guidance.compiled(matching, planned.grammar.grammar)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    return check


Follows = Callable[[Plan, str], bool]
TokenOf = Callable[[str], int | None]


@pytest.mark.parametrize(("name", "seen"), FRAMES)
def test_a_demanded_call_is_taken_and_read_and_nothing_else_is(
    name: str, seen: str, follows: Follows, token_of: TokenOf
) -> None:
    planned = plan(form_of(name, seen), tools(must=True), None, token_of, inside=False)
    form = planned.form
    right = calls(form, ("get_weather", '{"city": "Paris", "days": 3}'))
    assert follows(planned, right)
    answer = collect(read(form.reader(tools(must=True).schemas()), [right]))
    assert [(one.name, json.loads(one.arguments)) for one in answer.calls] == [
        ("get_weather", {"city": "Paris", "days": 3})
    ]
    assert answer.content == ""
    assert follows(planned, calls(form, ("now", '{"any": [1]}')))
    for wrong in (
        "Hello",
        "",
        calls(form, ("get_weather", '{"days": 3}')),
        calls(form, ("get_weather", '{"city": "Paris", "days": 0}')),
        calls(form, ("get_weather", '{"city": "Paris", "more": 0}')),
        calls(form, ("other", "{}")),
        right + " and more",
    ):
        assert not follows(planned, wrong), wrong


@pytest.mark.parametrize(("name", "seen"), [frame for frame in FRAMES if frame[0] != "openai"])
def test_several_calls_are_taken_unless_one_alone_is_wanted(
    name: str, seen: str, follows: Follows, token_of: TokenOf
) -> None:
    for parallel in (True, False):
        planned = plan(form_of(name, seen), tools(must=True, parallel=parallel), None, token_of, inside=False)
        two = calls(planned.form, ("get_weather", '{"city": "Paris"}'), ("now", "{}"))
        assert follows(planned, two) is parallel
        answer = collect(read(planned.form.reader(tools(must=True).schemas()), [two]))
        assert [one.name for one in answer.calls] == ["get_weather", "now"]


@pytest.mark.parametrize("name", sorted(REASONING_FORMATS))
@pytest.mark.parametrize("inside", [True, False])
def test_a_model_may_think_before_a_demanded_call(
    name: str, inside: bool, follows: Follows, token_of: TokenOf
) -> None:
    form = form_of("hermes", reasoning=name)
    planned = plan(form, tools(must=True), None, token_of, inside=inside)
    marks = REASONING_FORMATS[name].marks
    made = calls(form, ("now", "{}"))
    thought = f"\nHm < 3.\n{marks.closings[0]}\n{made}"
    assert follows(planned, thought if inside else marks.openings[0] + thought)
    assert follows(planned, made) is not inside


def test_gpt_oss_may_think_before_a_demanded_call(follows: Follows, token_of: TokenOf) -> None:
    form = form_of("openai")
    planned = plan(form, tools(must=True), None, token_of, inside=False)
    made = calls(form, ("get_weather", '{"city": "Paris"}'))
    assert follows(planned, f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{made}")
    assert follows(planned, made)


@pytest.mark.parametrize(("name", "seen"), MARKED)
def test_calls_of_strict_functions_follow_their_schema_though_the_answer_is_free(
    name: str, seen: str, follows: Follows, token_of: TokenOf
) -> None:
    form = form_of(name, seen)
    planned = plan(form, tools(must=False), None, token_of, inside=False)
    assert follows(planned, "Hello, {you} <b>.")
    assert follows(planned, "")
    assert follows(planned, "Well. " + calls(form, ("get_weather", '{"city": "Paris"}')))
    assert follows(planned, calls(form, ("now", '{"any": 1}')))
    assert not follows(planned, "Well. " + calls(form, ("get_weather", '{"town": "Paris"}')))
    assert not follows(planned, calls(form, ("other", "{}")))


@pytest.mark.parametrize("name", ["llama3_json", "pythonic"])
def test_an_answer_without_a_mark_is_a_call_or_does_not_begin_like_one(
    name: str, follows: Follows, token_of: TokenOf
) -> None:
    form = form_of(name)
    planned = plan(form, tools(must=False), None, token_of, inside=False)
    assert follows(planned, "Hello {you}.")
    assert follows(planned, calls(form, ("get_weather", '{"city": "Paris"}')))
    assert not follows(planned, calls(form, ("get_weather", "{}")))


def test_strict_functions_of_gpt_oss_are_held_too(follows: Follows, token_of: TokenOf) -> None:
    form = form_of("openai")
    planned = plan(form, tools(must=False), None, token_of, inside=False)
    thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
    told = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    right = calls(form, ("get_weather", '{"city": "Paris"}'))
    for before in ("", thought, told, thought + told):
        assert follows(planned, before + right)
        assert follows(planned, f"{before}<|channel|>final<|message|>Hello {{you}}.")
        assert not follows(planned, before + calls(form, ("get_weather", '{"town": "Paris"}')))
    assert follows(planned, calls(form, ("now", '{"any": 1}')))


@pytest.mark.parametrize(("name", "seen"), [*MARKED, ("openai", ""), ("llama3_json", ""), ("pythonic", "")])
def test_of_several_functions_only_those_that_the_request_allows_are_called(
    name: str, seen: str, follows: Follows, token_of: TokenOf
) -> None:
    form = form_of(name, seen)
    for must in (True, False):
        allowed = Tools(FUNCTIONS[1:], [], must, parallel=True, chosen=True)
        planned = plan(form, allowed, None, token_of, inside=False)
        assert follows(planned, calls(form, ("now", '{"any": 1}')))
        assert not follows(planned, calls(form, ("get_weather", '{"city": "Paris"}')))


def test_without_strict_functions_a_free_answer_has_no_grammar(token_of: TokenOf) -> None:
    asked = Tools(FUNCTIONS[1:], [], must=False, parallel=True)
    assert plan(form_of("hermes"), asked, None, token_of, inside=False).grammar is None


SCHEMA = Asked(
    Grammar("json_schema", '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"],'
            ' "additionalProperties": false}'), "response_format",
)  # fmt: skip


def test_an_answer_is_a_call_or_follows_the_schema_of_the_response(
    follows: Follows, token_of: TokenOf
) -> None:
    form = form_of("hermes")
    planned = plan(form, tools(must=False), SCHEMA, token_of, inside=False)
    assert follows(planned, '{"a": 1}')
    assert follows(planned, calls(form, ("get_weather", '{"city": "Paris"}')))
    assert not follows(planned, "Hello")
    assert not follows(planned, '{"b": 1}')


def test_tools_and_another_grammar_exclude_each_other(token_of: TokenOf) -> None:
    asked = Asked(Grammar("regex", "a"), "guided_regex")
    with pytest.raises(InvalidRequest, match="exclude each other") as caught:
        plan(form_of("hermes"), tools(must=False), asked, token_of, inside=False)
    assert caught.value.param == "guided_regex"


@pytest.mark.parametrize(
    ("grammar", "right"),
    [
        (SCHEMA.grammar, '{"a": 1}'),
        (Grammar("regex", r"a/b\/[0-9]+"), "a/b/12"),
        (Grammar("choice", '["yes", "no \\"é\\""]'), 'no "é"'),
    ],
)
def test_a_structured_answer_comes_behind_the_reasoning(
    grammar: Grammar, right: str, follows: Follows, token_of: TokenOf
) -> None:
    form = form_of("hermes", reasoning="think")
    inside = plan(form, None, Asked(grammar, "x"), token_of, inside=True)
    assert follows(inside, f"Hm.\n</think>\n\n{right}")
    assert not follows(inside, right)
    outside = plan(form, None, Asked(grammar, "x"), token_of, inside=False)
    assert follows(outside, f"<think>Hm.</think>{right}")
    assert follows(outside, right)
    assert not follows(outside, f"Hm. {right}")


def test_with_a_grammar_of_the_callers_own_a_model_does_not_think(token_of: TokenOf) -> None:
    asked = Asked(Grammar("lark", 'start: "x"'), "structured_outputs.grammar")
    planned = plan(form_of("hermes", reasoning="think"), None, asked, token_of, inside=True)
    assert planned.grammar is asked
    assert collect(read(planned.form.reader({}), ["x"])).content == "x"


def test_a_structured_answer_of_gpt_oss_is_in_its_final_channel(follows: Follows, token_of: TokenOf) -> None:
    planned = plan(form_of("openai"), None, SCHEMA, token_of, inside=False)
    text = '<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>{"a": 1}'
    assert follows(planned, text)
    assert collect(read(planned.form.reader({}), [text])).content == '{"a": 1}'
