"""docs/concepts/tools.md: the whole server calls functions when a request demands it, and their arguments follow their schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import openai
import pytest
from pydantic import BaseModel, Field

MESSAGES: Any = [{"role": "user", "content": "What is a rollout?"}]


class Scale(BaseModel):
    """Scale an endpoint."""

    replicas: int = Field(ge=0, le=9)
    why: str = Field(max_length=20)


class Pause(BaseModel):
    """Pause a rollout."""

    minutes: int = Field(ge=1, le=60)


TOOLS: Any = [openai.pydantic_function_tool(Scale), openai.pydantic_function_tool(Pause)]
SCHEMAS = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}


def check(calls: Any) -> None:
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])


@pytest.mark.parametrize("seed", range(4))
def test_a_demanded_call_is_made_and_follows_its_schema(seed: int, demo: openai.OpenAI) -> None:
    answer = demo.chat.completions.create(
        model="demo",
        messages=MESSAGES,
        tools=TOOLS,
        tool_choice="required",
        temperature=1,
        seed=seed,
        max_tokens=400,
    )
    [choice] = answer.choices
    assert choice.finish_reason in ("tool_calls", "length")
    calls = choice.message.tool_calls or []
    assert calls
    check(calls if choice.finish_reason == "tool_calls" else calls[:-1])
    assert not choice.message.content


def test_the_function_that_is_named_is_called_once(demo: openai.OpenAI) -> None:
    answer = demo.chat.completions.create(
        model="demo", messages=MESSAGES, tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "Pause"}}, max_tokens=200,
    )  # fmt: skip
    [choice] = answer.choices
    assert choice.finish_reason == "tool_calls"
    [call] = choice.message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "Pause"
    check([call])


@pytest.mark.parametrize("seed", range(3))
def test_only_a_function_that_the_choice_allows_is_called(seed: int, demo: openai.OpenAI) -> None:
    """The model sees the others too."""
    pause: Any = {"type": "function", "function": {"name": "Pause"}}
    allowed: Any = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [pause]}}
    answer = demo.chat.completions.create(
        model="demo", messages=MESSAGES, tools=TOOLS, tool_choice=allowed, temperature=1, seed=seed, max_tokens=200,
        parallel_tool_calls=False,
    )  # fmt: skip
    [call] = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "Pause"
    everything = demo.chat.completions.create(model="demo", messages=MESSAGES, tools=TOOLS, max_tokens=1)
    assert answer.usage is not None
    assert everything.usage is not None
    assert answer.usage.prompt_tokens == everything.usage.prompt_tokens
    free = allowed | {"allowed_tools": {"mode": "auto", "tools": [pause]}}
    text = demo.chat.completions.create(
        model="demo", messages=MESSAGES, tools=TOOLS, tool_choice=free, max_tokens=40
    )
    assert text.choices[0].message.content


def test_a_demanded_call_is_the_same_streamed_and_whole(demo: openai.OpenAI) -> None:
    fields: Any = {
        "model": "demo", "messages": MESSAGES, "tools": TOOLS, "tool_choice": "required", "temperature": 1, "seed": 3,
        "max_tokens": 300, "parallel_tool_calls": False,
    }  # fmt: skip
    whole = demo.chat.completions.create(**fields)
    [call] = whole.choices[0].message.tool_calls or []
    assert call.type == "function"
    with demo.chat.completions.stream(**fields, stream_options={"include_usage": True}) as stream:
        streamed = stream.get_final_completion()
    [again] = streamed.choices[0].message.tool_calls or []
    assert (again.function.name, again.function.arguments) == (call.function.name, call.function.arguments)
    assert streamed.usage == whole.usage


def test_the_sdk_parses_a_demanded_call_with_pydantic(demo: openai.OpenAI) -> None:
    answer = demo.chat.completions.parse(
        model="demo", messages=MESSAGES, tools=TOOLS, max_tokens=300,
        tool_choice={"type": "function", "function": {"name": "Scale"}},
    )  # fmt: skip
    [call] = answer.choices[0].message.tool_calls or []
    assert isinstance(call.function.parsed_arguments, Scale)


def test_a_free_answer_beside_strict_functions_is_text(demo: openai.OpenAI) -> None:
    answer = demo.chat.completions.create(model="demo", messages=MESSAGES, tools=TOOLS, max_tokens=60)
    assert answer.choices[0].message.content
    assert not answer.choices[0].message.tool_calls


def test_a_schema_that_cannot_be_held_is_a_400_that_names_the_tools(demo: openai.OpenAI) -> None:
    wrong: Any = {
        "type": "function",
        "function": {"name": "f", "parameters": {"properties": {"a": {"not": {"type": "string"}}}}},
    }
    with pytest.raises(openai.BadRequestError, match="not") as caught:
        demo.chat.completions.create(model="demo", messages=MESSAGES, tools=[wrong], tool_choice="required")
    assert caught.value.param == "tools"
