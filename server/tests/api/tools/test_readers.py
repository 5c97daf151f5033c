"""docs/concepts/tools.md: a call is read from the text of an answer, in the format that the model writes, as it comes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server.api.deltas import Content, ToolCallArguments
from llmendpoint_server.api.tools.readers import TOOL_FORMATS
from llmendpoint_server.api.tools.source import HEAD_MAX
from server.tests.api.tools.answers import CASES, PARIS, Answer, Case, answer_of, read, reader_of

FORMATS = sorted(TOOL_FORMATS)
CASES_BY_FORMAT = {name: [case for case in CASES if case.format == name] for name in FORMATS}


@st.composite
def cut(draw: st.DrawFn, text: str) -> list[str]:
    at = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[start:end] for start, end in zip([0, *at], [*at, len(text)], strict=True)]


@st.composite
def almost_an_answer(draw: st.DrawFn, format_name: str) -> str:
    """Parts of right answers, cut anywhere and put together with other text and with marks."""
    whole = st.sampled_from([case.text for case in CASES_BY_FORMAT[format_name]])
    part = whole.flatmap(
        lambda text: st.tuples(st.integers(0, len(text)), st.integers(0, len(text))).map(
            lambda ends: text[min(ends) : max(ends)]
        )
    )
    marks = st.sampled_from(
        [*TOOL_FORMATS[format_name].markers, "{", "}", '"', "\\", "[", "]", "\n", " ", "<"]
    )
    return "".join(draw(st.lists(st.one_of(part, marks, st.text(max_size=8)), max_size=6)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_two_calls_are_read_from_an_answer_as_its_model_writes_it(case: Case) -> None:
    answer = answer_of(case.format, case.text)
    assert [call.name for call in answer.calls] == ["get_weather", "now"]
    assert json.loads(answer.calls[0].arguments) == PARIS
    assert json.loads(answer.calls[1].arguments) == {}
    assert answer.content == case.before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_character_by_character_gives_the_same_as_the_whole(case: Case) -> None:
    assert read(reader_of(case.format), case.text) == read(reader_of(case.format), [case.text])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_a_call_is_told_before_its_arguments_are_whole(case: Case) -> None:
    """But where the arguments come before the name."""
    reader = reader_of(case.format)
    until = case.text.index("Paris") + len("Paris")
    deltas = reader.push(case.text[:until])
    shown = "".join(delta.text for delta in deltas if isinstance(delta, ToolCallArguments))
    assert shown.endswith("Paris") or json.dumps(PARIS) + ', "name"' in case.text


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_how_an_answer_is_cut_into_pieces_changes_nothing(name: str, data: st.DataObject) -> None:
    text = data.draw(almost_an_answer(name))
    assert read(reader_of(name), data.draw(cut(text))) == read(reader_of(name), [text])


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "openai"])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_an_answer_in_which_no_call_is_found_is_content_to_the_last_character(
    name: str, data: st.DataObject
) -> None:
    text = data.draw(almost_an_answer(name))
    answer = answer_of(name, text)
    if not answer.calls:
        assert answer == Answer(text, "", ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.format)
def test_of_an_answer_that_is_cut_anywhere_nothing_is_lost(case: Case) -> None:
    """The letters of Paris are in a call's arguments or, before it became a call, in the content."""
    until = case.text.index("Paris")
    for end in range(until + 5, len(case.text)):
        answer = answer_of(case.format, case.text[:end])
        assert "Paris" in answer.content + "".join(call.arguments for call in answer.calls)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("hermes", "A call looks like <tool_call>{...}</tool_call>, with JSON between."),
        ("hermes", '<tool_call>{"name": "get_weather", "arguments": "Paris"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "get weather", "arguments": {}}</tool_call>'),
        ("hermes", '<tool_call>{"arguments": {}}</tool_call>'),
        ("llama3_json", '{"name": "Alice", "parameters": {"age": 3}}'),
        ("llama3_json", '{"name": "get_weather", "age": 3}'),
        ("llama3_json", '<|python_tag|>print("Hello")'),
        ("mistral", "[TOOL_CALLS] is a mark."),
        ("pythonic", "[1, 2, 3]"),
        ("pythonic", "[other(city='Paris')]"),
        ("deepseek_v3", "<｜tool▁calls▁begin｜> and no more"),
        ("qwen3_coder", "Write <function=name> first."),
        ("glm45", "<tool_call>is a tag"),
        ("gemma4", "<|tool_call>call me"),
        ("minimax_m2", "<minimax:tool_call> is a tag"),
        ("minimax_m2", '<minimax:tool_call>\n<invoke name="f">and more'),
        ("deepseek_v32", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f"'),
    ],
)
def test_text_that_only_looks_like_a_call_is_content(name: str, text: str) -> None:
    assert answer_of(name, text) == Answer(text, "", ())


def test_a_call_behind_a_broken_one_is_read() -> None:
    text = '<tool_call>{"name": <tool_call>{"name": "now", "arguments": {}}</tool_call>'
    answer = answer_of("hermes", text)
    assert answer.content == '<tool_call>{"name":'
    assert [call.name for call in answer.calls] == ["now"]


def test_text_after_a_call_is_content_too() -> None:
    answer = answer_of("hermes", '<tool_call>{"name": "now", "arguments": {}}</tool_call>\nDone.')
    assert (answer.content, len(answer.calls)) == ("\nDone.", 1)


@pytest.mark.parametrize("name", FORMATS)
def test_a_reader_holds_no_more_than_its_bound(name: str) -> None:
    """An answer that goes on for ever after a mark is shown once it cannot be a call any more."""
    for marker in TOOL_FORMATS[name].seen:
        reader = reader_of(name)
        given = marker + '{"name": "get_weather", "id": "' + "x" * (40 * HEAD_MAX)
        shown = sum(
            len(delta.text)
            for at in range(0, len(given), 1000)
            for delta in reader.push(given[at : at + 1000])
            if isinstance(delta, Content)
        )
        assert len(given) - shown < 4 * HEAD_MAX


def test_values_of_qwen_coder_follow_the_schema() -> None:
    def argument(key: str, value: str) -> object:
        text = f"<tool_call>\n<function=get_weather>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
        return json.loads(answer_of("qwen3_coder", text).calls[0].arguments)[key]

    assert argument("city", "75001") == "75001"
    assert argument("days", "12") == 12
    assert argument("days", "a few") == "a few"
    assert argument("unknown", '["a", 1]') == ["a", 1]
    assert argument("city", "two\nlines\n") == "two\nlines\n"


def test_the_tag_of_deepseek_says_whether_a_value_is_text() -> None:
    def argument(key: str, about: str, value: str) -> object:
        text = (
            f'<｜DSML｜function_calls><｜DSML｜invoke name="get_weather"><｜DSML｜parameter name="{key}"{about}>{value}'
            "</｜DSML｜parameter></｜DSML｜invoke></｜DSML｜function_calls>"
        )
        return json.loads(answer_of("deepseek_v32", text).calls[0].arguments)[key]

    assert argument("days", ' string="true"', "3") == "3"
    assert argument("city", ' string="false"', "3") == 3
    assert argument("city", "", "3") == "3"
    assert argument("days", "", "3") == 3


def test_python_values_become_json() -> None:
    text = r"""[get_weather(city="a\u00e9\\b\'", days=-1.5e3, hourly=None, more={'k': [1, (2, True), "x"], "e": {}})]"""
    assert json.loads(answer_of("pythonic", text).calls[0].arguments) == {
        "city": "aé\\b'", "days": -1500.0, "hourly": None, "more": {"k": [1, [2, True], "x"], "e": {}},
    }  # fmt: skip


def test_gemma_values_become_json() -> None:
    text = '<|tool_call>call:now{a:{b:[1,<|"|>x, {y}<|"|>]},c:null,d:word}<tool_call|>'
    assert json.loads(answer_of("gemma4", text).calls[0].arguments) == {
        "a": {"b": [1, "x, {y}"]}, "c": None, "d": "word",
    }  # fmt: skip


def test_kimi_keeps_the_ids_of_its_model() -> None:
    case = next(case for case in CASES if case.format == "kimi_k2")
    assert [call.id for call in answer_of("kimi_k2", case.text).calls] == [
        "functions.get_weather:0",
        "functions.now:1",
    ]


def test_ids_of_mistral_are_as_its_template_wants_them() -> None:
    new_id = TOOL_FORMATS["mistral"].new_id()
    assert len(new_id) == 9
    assert new_id.isalnum()
