"""docs/concepts/tools.md: what a model thinks before it answers is told apart from the answer."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_server import limits
from llmendpoint_server.api.tools.readers import (
    REASONING_FORMATS,
    REASONING_NAMES,
    TOOL_FORMATS,
    TOOL_NAMES,
    AnswerFormat,
    detect,
)
from server.tests.api.tools.answers import SCHEMAS, Answer, collect, read

THINK = AnswerFormat(None, REASONING_FORMATS["think"])
WITH_CALLS = AnswerFormat(TOOL_FORMATS["hermes"], REASONING_FORMATS["think"])
HARMONY = AnswerFormat(TOOL_FORMATS["openai"], None)


def split(form: AnswerFormat, text: str, prompt: str = "") -> Answer:
    return collect(read(form.reader(SCHEMAS, inside=form.begins_inside(prompt)), [text]))


@pytest.mark.parametrize("name", sorted(REASONING_FORMATS))
def test_reasoning_between_its_marks_is_told_apart(name: str) -> None:
    form = REASONING_FORMATS[name]
    text = f"{form.marks.openings[0]}\nHm, 2 < 3.\n{form.marks.closings[0]}\n\nYes."
    assert split(AnswerFormat(None, form), text) == Answer("Yes.", "Hm, 2 < 3.", ())


def test_reasoning_may_begin_in_the_prompt() -> None:
    assert split(THINK, "Hm.\n</think>\n\nYes.", "...<|assistant|>\n<think>\n") == Answer("Yes.", "Hm.", ())


def test_an_empty_block_in_the_prompt_means_no_reasoning() -> None:
    assert split(THINK, "Yes.", "<think>\n\n</think>\n\n") == Answer("Yes.", "", ())


def test_only_the_start_of_an_answer_is_reasoning() -> None:
    text = "\nYes: <think>no</think>"
    assert split(THINK, text) == Answer(text, "", ())


def test_an_answer_cut_while_the_model_thinks_is_all_reasoning() -> None:
    assert split(THINK, "<think>Hm, \n") == Answer("", "Hm, \n", ())


def test_a_call_is_read_behind_the_reasoning_and_not_in_it() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    answer = split(WITH_CALLS, f"<think>{call}</think>\n{call}")
    assert (answer.reasoning, answer.content, len(answer.calls)) == (call, "", 1)


def test_without_functions_in_the_request_a_call_is_content() -> None:
    call = '<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert collect(read(WITH_CALLS.reader({}), [call])) == Answer(call, "", ())


def test_the_channels_of_gpt_oss_are_told_apart() -> None:
    text = (
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
        "<|constrain|>json<|message|>{}<|call|><|start|>assistant<|channel|>final<|message|>It is late.<|return|>"
    )
    answer = split(HARMONY, text)
    assert (answer.reasoning, answer.content) == ("Hm.", "It is late.")
    assert [(call.name, call.arguments) for call in answer.calls] == [("now", "{}")]


def test_gpt_oss_without_channels_is_content() -> None:
    assert split(HARMONY, "Hello.") == Answer("Hello.", "", ())


@settings(max_examples=200, deadline=None)
@given(data=st.data(), inside=st.booleans())
def test_how_an_answer_is_cut_changes_nothing_and_nothing_is_lost(data: st.DataObject, inside: bool) -> None:
    bits = st.sampled_from(
        ["<think>", "</think>", "\n", "<", "think", "Hm", " ", "</tool_call>", "<tool_call>{"]
    )
    text = "".join(data.draw(st.lists(bits, max_size=10)))
    whole = read(WITH_CALLS.reader(SCHEMAS, inside=inside), [text])
    assert read(WITH_CALLS.reader(SCHEMAS, inside=inside), text) == whole
    answer = collect(whole)
    assert (answer.reasoning + answer.content).count("Hm") == text.count("Hm")


def test_the_flags_take_the_names_of_all_formats() -> None:
    assert {"auto", "none", *TOOL_FORMATS, *TOOL_NAMES} == set(limits.TOOL_CALL_PARSERS)
    assert {"auto", "none", *REASONING_FORMATS, *REASONING_NAMES} == set(limits.REASONING_PARSERS)


@pytest.mark.parametrize(
    ("template", "tools", "reasoning"),
    [
        ("{{ '<tool_call>' }} {{ '<think>' }}", "hermes", "think"),
        ("<tool_call>\n<function=example>", "qwen3_coder", None),
        ("<tool_call><arg_key></think>", "glm45", "think"),
        ("[TOOL_CALLS] [THINK]", "mistral", "mistral"),
        ("<|python_tag|>", "llama3_json", None),
        ("<｜tool▁calls▁begin｜> </think>", "deepseek_v3", "think"),
        ("<think> <｜DSML｜function_calls>", "deepseek_v32", "think"),
        ("{% set begin = '<minimax:tool_call>' %} ]~b]ai\n<think>", "minimax_m2", "think"),
        ("<|start|>assistant<|channel|>analysis", "openai", None),
        ("<|tool_call>call: <|channel>thought", "gemma4", "gemma4"),
        ("<start_of_turn>", None, None),
    ],
)
def test_the_format_is_seen_in_the_chat_template(
    template: str, tools: str | None, reasoning: str | None
) -> None:
    form = detect(template)
    assert (form.tools and form.tools.name, form.reasoning and form.reasoning.name) == (tools, reasoning)
