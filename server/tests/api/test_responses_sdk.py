"""docs/api.md: `client.responses` of the `openai` SDK: create, stream, parse, tools and their results, its exceptions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import openai
import pytest
from pydantic import BaseModel, ConfigDict, Field

from server.tests.server_process import ServerProcess

QUESTION = "What is this project?"
WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Berlin", "Paris"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Verdict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    level: Literal["low", "high"]
    score: int = Field(ge=0, le=9)


def test_an_answer_is_that_of_the_chat_whole_and_streamed(demo: openai.OpenAI) -> None:
    chat = demo.chat.completions.create(
        model="demo", messages=[{"role": "user", "content": QUESTION}], temperature=0
    )
    answer = demo.responses.create(model="demo", input=QUESTION, temperature=0)
    assert answer.output_text == chat.choices[0].message.content
    assert answer.status == "completed"
    assert chat.usage is not None
    assert answer.usage is not None
    assert answer.usage.output_tokens == chat.usage.completion_tokens
    with demo.responses.stream(model="demo", input=QUESTION, temperature=0) as events:
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
        last = events.get_final_response()
    assert "".join(pieces) == last.output_text == answer.output_text
    assert last.usage is not None
    assert (last.usage.input_tokens, last.usage.output_tokens) == (
        answer.usage.input_tokens,
        answer.usage.output_tokens,
    )


def test_a_cut_answer_says_why(demo: openai.OpenAI) -> None:
    answer = demo.responses.create(model="demo", input=QUESTION, temperature=0, max_output_tokens=3)
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    events = list(
        demo.responses.create(model="demo", input=QUESTION, temperature=0, max_output_tokens=3, stream=True)
    )
    assert events[-1].type == "response.incomplete"
    assert events[-1].response.output_text == answer.output_text


def test_a_pydantic_model_is_parsed_whole_and_streamed(demo: openai.OpenAI) -> None:
    asked: Any = {"model": "demo", "input": QUESTION, "temperature": 0, "max_output_tokens": 200}
    answer = demo.responses.parse(text_format=Verdict, **asked)
    assert isinstance(answer.output_parsed, Verdict)
    with demo.responses.stream(text_format=Verdict, **asked) as events:
        last = events.get_final_response()
    assert last.output_parsed == answer.output_parsed
    plain = demo.responses.create(
        text={"format": {"type": "json_object"}}, **asked | {"max_output_tokens": 40}
    )
    assert plain.output_text.lstrip().startswith("{")


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "get_weather"}])
def test_a_function_is_called_and_its_result_goes_back(demo: openai.OpenAI, choice: Any) -> None:
    asked: list[Any] = [{"role": "user", "content": "How is the weather?"}]
    first = demo.responses.create(
        model="demo", input=asked, tools=[WEATHER], tool_choice=choice, temperature=0, max_output_tokens=200
    )
    [call] = first.output
    assert call.type == "function_call"
    assert json.loads(call.arguments)["city"] in ("Berlin", "Paris")
    # As OpenAI's guide does it: the items of the answer, as they are.
    asked += first.output
    asked.append({"type": "function_call_output", "call_id": call.call_id, "output": "sunny"})
    second = demo.responses.create(model="demo", input=asked, tools=[WEATHER], max_output_tokens=20)
    assert second.output_text


def test_arguments_are_streamed(demo: openai.OpenAI) -> None:
    with demo.responses.stream(
        model="demo",
        input="Weather?",
        tools=[WEATHER],
        tool_choice="required",
        temperature=0,
        max_output_tokens=200,
    ) as events:
        pieces = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
        [call] = events.get_final_response().output
    assert call.type == "function_call"
    assert "".join(pieces) == call.arguments


def test_log_probabilities_are_shown_whole_and_streamed(demo: openai.OpenAI) -> None:
    asked: Any = {
        "model": "demo", "input": QUESTION, "temperature": 0, "max_output_tokens": 5, "top_logprobs": 2,
        "include": ["message.output_text.logprobs"],
    }  # fmt: skip
    part: Any = demo.responses.create(**asked).output[0]
    scores = part.content[0].logprobs
    assert len(scores) == 5
    assert all(len(score.top_logprobs) == 2 and score.logprob <= 0 for score in scores)
    events = demo.responses.create(**asked, stream=True)
    streamed = [
        score for event in events if event.type == "response.output_text.delta" for score in event.logprobs
    ]
    assert [score.token for score in streamed] == [score.token for score in scores]


@pytest.fixture(scope="module")
def simulated() -> Iterator[openai.OpenAI]:
    with ServerProcess(
        "--served-model-name", "demo", module="llmendpoint_server.simulator", model="any"
    ) as server:
        server.wait_ready()
        with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
            yield client


def test_the_simulator_answers_too(simulated: openai.OpenAI) -> None:
    answer = simulated.responses.create(model="demo", input="Hello", max_output_tokens=8)
    with simulated.responses.stream(model="demo", input="Hello", max_output_tokens=8) as events:
        pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert answer.output_text
    assert pieces
    assert answer.usage is not None
    assert answer.usage.output_tokens <= 8


def item(**fields: Any) -> dict[str, Any]:
    return {"input": [fields]}


def form(**fields: Any) -> dict[str, Any]:
    return {"text": {"format": fields}}


@pytest.mark.parametrize(
    ("change", "param", "says_so"),
    [
        ({"input": []}, "input", "at least 1"),
        ({"input": None}, "input", "input must be a string, or a list"),
        ({"temperature": 3}, "temperature", "0 to 2"),
        ({"max_output_tokens": 0}, "max_output_tokens", "from 1 to"),
        ({"extra_body": {"max_tokens": 5}}, "max_tokens", "Unknown parameter: max_tokens"),
        ({"extra_body": {"messages": []}}, "messages", "Unknown parameter: messages"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "batch service of the chart"),
        ({"conversation": "conv_1"}, "conversation", "batch service of the chart"),
        ({"background": True}, "background", "batch service of the chart"),
        ({"prompt": {"id": "p"}}, "prompt", "it stores no prompts"),
        ({"truncation": "auto"}, "truncation", "it leaves nothing out"),
        ({"include": ["colour"]}, "include[0]", "message.output_text.logprobs"),
        ({"top_logprobs": 2}, "top_logprobs", "message.output_text.logprobs"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "'low'"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context", "not supported"),
        (item(role="tool", content="x"), "input[0].role", "'user'"),
        (item(role="user"), "input[0].content", "Missing"),
        (item(type="message", content="x"), "input[0].role", "Missing"),
        (item(role="user", content=[{"type": "input_image", "image_url": "x"}]), "input[0].content[0].type", "text alone"),
        (item(role="user", content=[{"type": "input_text"}]), "input[0].content[0].text", "Missing"),
        (item(type="item_reference", id="msg_1"), "input[0].type", "send the item itself"),
        (item(type="web_search_call", id="x"), "input[0].type", "'function_call_output'"),
        (item(type="function_call", name="a", arguments="{}"), "input[0].call_id", "Missing"),
        (item(type="function_call", name="a", call_id="c", arguments="[1]"), "input[0].arguments", "JSON object"),
        (item(type="function_call_output", call_id="c"), "input[0].output", "Missing"),
        (item(type="reasoning", id="r", summary=[], encrypted_content="x"), "input", "send at least one message"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "no tools of its own"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "Missing"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "letters"),
        ({"tools": [WEATHER | {"parameters": {"type": "array"}}]}, "tools[0].parameters.type", "tools[0].parameters"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "not in tools"),
        ({"tools": [WEATHER], "tool_choice": {"type": "file_search"}}, "tool_choice", "'required'"),
        ({"tool_choice": "required"}, "tool_choice", "only for requests with tools"),
        (form(type="xml"), "text.format.type", "'json_schema'"),
        (form(type="json_schema", name="x"), "text.format.schema", "Missing"),
        (form(type="json_schema", name="x", schema={"type": 7}), "text.format.schema", "text.format.schema"),
        ({"metadata": {"a": "b" * 600}}, "metadata", "512"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_a_bad_request_that_names_the_field(
    demo: openai.OpenAI, change: dict[str, Any], param: str, says_so: str
) -> None:
    asked: dict[str, Any] = {"model": "demo", "input": "Hello"}
    with pytest.raises(openai.BadRequestError) as caught:
        demo.responses.create(**asked | change)
    assert (caught.value.param or "").startswith(param)
    assert says_so in caught.value.message
    assert caught.value.type == "invalid_request_error"


def test_a_long_input_and_an_unknown_model_have_their_codes(demo: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        demo.responses.create(model="demo", input="word " * 20_000)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.NotFoundError) as unknown:
        demo.responses.create(model="nobody", input="Hello")
    assert unknown.value.code == "model_not_found"
