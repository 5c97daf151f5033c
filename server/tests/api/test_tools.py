"""docs/concepts/tools.md: tools, their calls and reasoning, whole and streamed, through the real server and the real `openai` SDK."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from llmendpoint_server.api.off_loop import INLINE_BYTES
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.tools.answers import CASES, PARIS, SCHEMAS, Case
from server.tests.server_process import ServerProcess

TOOLS: Any = [
    {"type": "function", "function": {"name": name, "description": "d", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
FORMATS = ["hermes", "mistral", "openai", "gemma4"]
CASE_OF = {case.format: case for case in CASES}


def asking(text: str) -> Any:
    """The engine of these tests says what stands between the marks."""
    return [{"role": "user", "content": f"SAY<<<{text}>>>END"}]


@pytest.fixture(scope="module")
def special_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo model with markers as special tokens, as most models have them."""
    folder = Path(
        shutil.copytree(resolve_model("embedded://demo"), tmp_path_factory.mktemp("special") / "model")
    )
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    size = len(content["model"]["vocab"]) + len(content["added_tokens"])
    markers = ["[TOOL_CALLS]", "[ARGS]", "<|channel|>", "<|message|>", "<|call|>", "<|start|>", "<|end|>", "<|constrain|>",
               "<|tool_call>", "<tool_call|>", '<|"|>']  # fmt: skip
    content["added_tokens"] += [
        {"id": size + at, "content": text, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False} for at, text in enumerate(markers)
    ]  # fmt: skip
    path.write_text(json.dumps(content))
    return folder


@contextmanager
def speaker(*flags: str, model: str = "embedded://demo") -> Iterator[openai.OpenAI]:
    with ServerProcess("--served-model-name", "demo", *flags, model=model, fake={"speak": True}) as server:
        server.wait_ready()
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            yield client


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    with speaker("--reasoning-parser", "qwen3") as client:
        yield client


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[dict[str, Any], str, Any]:
    """The message that the chunks make, the finish reason and the usage."""
    message: dict[str, Any] = {"content": "", "reasoning_content": "", "tool_calls": []}
    reason = usage = None
    for chunk in client.chat.completions.create(
        model="demo", stream=True, stream_options={"include_usage": True}, **fields
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            message["content"] += choice.delta.content or ""
            message["reasoning_content"] += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or ():
                assert call.function is not None
                if call.index == len(message["tool_calls"]):
                    message["tool_calls"].append({"id": call.id, "name": call.function.name, "arguments": ""})
                message["tool_calls"][call.index]["arguments"] += call.function.arguments or ""
    return message, reason or "", usage


def check_both_calls(client: openai.OpenAI, case: Case) -> None:
    fields: Any = {"messages": asking(case.text), "tools": TOOLS}
    whole = client.chat.completions.create(model="demo", **fields)
    [choice] = whole.choices
    calls = choice.message.tool_calls or []
    assert [call.function.name for call in calls if call.type == "function"] == ["get_weather", "now"]
    assert json.loads(calls[0].function.arguments) == PARIS  # type: ignore[union-attr]  # of type function, see above
    assert (choice.message.content or "") == case.before
    assert choice.finish_reason == "tool_calls"
    message, reason, usage = streamed(client, **fields)
    assert message["content"] == case.before
    assert [(call["name"], call["arguments"]) for call in message["tool_calls"]] == [
        (call.function.name, call.function.arguments) for call in calls if call.type == "function"
    ]
    assert all(call["id"] for call in message["tool_calls"])
    assert reason == "tool_calls"
    assert usage == whole.usage


@pytest.mark.parametrize("name", FORMATS)
def test_calls_are_read_whole_and_streamed_in_the_form_of_the_model(name: str, special_model: Path) -> None:
    with speaker("--tool-call-parser", name, model=str(special_model)) as client:
        check_both_calls(client, CASE_OF[name])


def test_a_model_whose_template_knows_no_tools_is_told_of_them_and_of_a_form(client: openai.OpenAI) -> None:
    check_both_calls(client, CASES[0])


def test_a_call_goes_back_as_history_with_its_result(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="demo", messages=asking(CASES[0].text), tools=TOOLS)
    message = answer.choices[0].message
    history: Any = [*asking("x"), message.model_dump(exclude_none=True)]
    history += [
        {"role": "tool", "tool_call_id": call.id, "content": "SAY<<<Sunny.>>>END"}
        for call in message.tool_calls or ()
    ]
    answer = client.chat.completions.create(model="demo", messages=history, tools=TOOLS)
    assert answer.choices[0].message.content == "Sunny."
    assert answer.choices[0].finish_reason == "stop"


@pytest.mark.parametrize("arguments", ['{"a": "\\ud800 é"}', '{"\\uDFFF": 1}', '{"a": "\\uD83D\\uDE00"}'])
def test_half_a_character_in_a_call_of_the_history_is_taken(client: openai.OpenAI, arguments: str) -> None:
    """A model wrote it, and its client sends it back: JSON allows it, UTF-8 does not."""
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    history: Any = [*asking("x"), {"role": "assistant", "tool_calls": [call]}]
    history.append({"role": "tool", "tool_call_id": "c1", "content": "SAY<<<Sunny.>>>END"})
    answer = client.chat.completions.create(model="demo", messages=history, tools=TOOLS)
    assert answer.choices[0].message.content == "Sunny."


def test_without_tools_or_with_choice_none_a_call_is_content(client: openai.OpenAI) -> None:
    text = CASES[0].text
    for fields in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        answer = client.chat.completions.create(model="demo", messages=asking(text), **fields)
        assert answer.choices[0].message.content == text
        assert not answer.choices[0].message.tool_calls


def test_without_parallel_calls_there_is_one(client: openai.OpenAI) -> None:
    fields: Any = {"messages": asking(CASES[0].text), "tools": TOOLS, "parallel_tool_calls": False}
    answer = client.chat.completions.create(model="demo", **fields)
    assert len(answer.choices[0].message.tool_calls or ()) == 1
    assert len(streamed(client, **fields)[0]["tool_calls"]) == 1


def test_a_call_that_max_tokens_cut_says_length(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="demo", messages=asking(CASES[0].text), tools=TOOLS, max_tokens=60
    )
    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls or answer.choices[0].message.content


def test_reasoning_has_its_own_field_whole_and_streamed(client: openai.OpenAI) -> None:
    fields: Any = {"messages": asking("<think>\nHm, é.\n</think>\n\nYes.")}
    whole = client.chat.completions.create(model="demo", **fields).choices[0].message
    assert (whole.content, getattr(whole, "reasoning_content", None)) == ("Yes.", "Hm, é.")
    message, reason, _ = streamed(client, **fields)
    assert (message["content"], message["reasoning_content"], reason) == ("Yes.", "Hm, é.", "stop")


def test_reasoning_is_left_out_on_demand(client: openai.OpenAI) -> None:
    fields: Any = {"messages": asking("<think>Hm.</think>Yes."), "extra_body": {"include_reasoning": False}}
    whole = client.chat.completions.create(model="demo", **fields).choices[0].message
    assert (whole.content, getattr(whole, "reasoning_content", None)) == ("Yes.", None)
    assert streamed(client, **fields)[0]["reasoning_content"] == ""


def test_the_last_message_is_continued(client: openai.OpenAI) -> None:
    messages: Any = [*asking("more.</think>Yes."), {"role": "assistant", "content": "<think>Hm, "}]
    answer = client.chat.completions.create(
        model="demo", messages=messages, extra_body={"continue_final_message": True}
    )
    message = answer.choices[0].message
    assert (message.content, getattr(message, "reasoning_content", None)) == ("Yes.", "more.")


def test_a_chat_whose_template_is_slow_is_rendered_off_the_event_loop_and_answered(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(resolve_model("embedded://demo"), tmp_path / "model"))
    compared = "{% for a in messages %}{% for b in messages %}{% if a.role != b.role %}x{% endif %}{% endfor %}{% endfor %}"
    (folder / "chat_template.jinja").write_text(compared + "{{ messages[-1].content }}")
    messages: Any = [*[{"role": "user", "content": "a"}] * 300, *asking("Yes.")]
    assert len(json.dumps(messages)) < INLINE_BYTES
    with speaker(model=str(folder)) as client:
        answer = client.chat.completions.create(model="demo", messages=messages)
        assert answer.choices[0].message.content == "Yes."


CITY = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"tools": [CITY] * 129}, "tools", "at most 128"),
        ({"tools": [CITY, CITY]}, "tools[1].function.name", "a second time"),
        (
            {"tools": [{"type": "function", "function": {"name": "f g"}}]},
            "tools[0].function.name",
            "1 to 64 letters",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "'function'"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "Missing"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]},
            "tools[0].function.parameters.type",
            "'object'",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": "x" * 70_000}}}]},
            "tools[0].function.parameters",
            "at most 65536",
        ),
        ({"tools": "all"}, "tools", "a list of at most 128 objects"),
        ({"tools": [CITY], "tool_choice": "some"}, "tool_choice", "'required'"),
        (
            {"tools": [CITY], "tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool_choice",
            "'g'",
        ),
        ({"tool_choice": "required"}, "tool_choice", "only for requests with tools"),
        *(
            (
                {"tools": [CITY], "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}},
                f"tool_choice{at}",
                says,
            )
            for allowed, at, says in (
                ({"mode": "some", "tools": [CITY]}, ".allowed_tools.mode", "'required'"),
                ({"mode": "auto", "tools": []}, ".allowed_tools.tools", "1 to 128"),
                (
                    {"mode": "auto", "tools": [{"type": "web_search"}]},
                    ".allowed_tools.tools[0]",
                    "'function'",
                ),
                (
                    {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]},
                    ".allowed_tools.tools[0]",
                    "'g', which is not in tools",
                ),
                ({"mode": "auto"}, "", "allowed_tools"),
            )
        ),
        ({"reasoning_effort": "huge"}, "reasoning_effort", "'minimal'"),
        ({"chat_template_kwargs": []}, "chat_template_kwargs", "an object of at most 64"),
        ({"chat_template_kwargs": {"a": "x" * 20_000}}, "chat_template_kwargs", "16384 bytes"),
        ({"chat_template_kwargs": {"tools": 1}}, "chat_template_kwargs.tools", "field of the body"),
        ({"documents": ["x"]}, "documents", "title and text"),
        (
            {"continue_final_message": True, "add_generation_prompt": True},
            "continue_final_message",
            "exclude",
        ),
    ],
)
def test_what_is_wrong_with_tools_is_a_400_that_names_it(
    fields: Any, param: str, says: str, client: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=asking("x"), extra_body=fields)
    assert caught.value.param == param
    assert says in caught.value.message


@pytest.mark.parametrize(
    ("message", "param", "says"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].tool_call_id", "Missing"),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]},
            "messages[0].tool_calls[0].function.arguments",
            "a JSON object",
        ),
        (
            {"role": "assistant", "tool_calls": [{"id": "a", "type": "custom", "function": {"name": "f"}}]},
            "messages[0].tool_calls[0].type",
            "'function'",
        ),
        ({"role": "user", "content": None}, "messages[0].content", "text parts"),
    ],
)
def test_what_is_wrong_with_a_message_of_calls_is_a_400_that_names_it(
    message: Any, param: str, says: str, client: openai.OpenAI
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo", messages=[message])
    assert caught.value.param == param
    assert says in caught.value.message


def test_a_model_whose_calls_cannot_be_read_refuses_tools() -> None:
    with speaker("--tool-call-parser", "none") as client:
        with pytest.raises(openai.BadRequestError, match="--tool-call-parser") as caught:
            client.chat.completions.create(model="demo", messages=asking("x"), tools=TOOLS)
        assert caught.value.param == "tools"
