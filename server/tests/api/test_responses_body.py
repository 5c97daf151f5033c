"""docs/api.md: the input of /v1/responses is a chat; items that belong together are one message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmendpoint_server.api.messages import for_template
from llmendpoint_server.api.openai_responses.shapes import ResponseShape
from llmendpoint_server.api.openai_responses.translation import parse_response_body, renamed
from llmendpoint_server.api.prepared import make_sampling
from llmendpoint_server.api.responses import Usage, encode_json
from llmendpoint_server.api.sampling_defaults import SamplingDefaults
from llmendpoint_server.api.tools.asked import read_tools
from llmendpoint_server.api.view import View
from llmendpoint_server.errors import InvalidRequest, PromptTooLong, QueueFull, RequestError
from llmendpoint_server.limits import REPEATED_BYTES_MAX
from llmendpoint_server.protocol import Loaded


def chat(**fields: Any) -> Any:
    return parse_response_body(bytearray(json.dumps({"model": "m", "input": "Hi", **fields}).encode()))


def messages(*items: dict[str, Any]) -> list[dict[str, Any]]:
    return for_template(chat(input=list(items)).messages)


def said(text: str, role: str = "assistant") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def call(name: str, arguments: str = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": name, "name": name, "arguments": arguments, **more}


def result(name: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": name, "output": "ok"}


def test_what_is_said_and_called_in_one_go_is_one_message() -> None:
    found = messages(
        thought("Hm."), said("I look."), call("a"), call("b"), said("Wait."), result("a"), result("b")
    )
    assert [message["role"] for message in found] == ["assistant", "tool", "tool"]
    assert (found[0]["content"], found[0]["reasoning_content"]) == ("I look.Wait.", "Hm.")
    assert [one["function"]["name"] for one in found[0]["tool_calls"]] == ["a", "b"]
    assert [message["name"] for message in found[1:]] == ["a", "b"]


@pytest.mark.parametrize("second", [said("Two"), thought("Hm.")])
def test_what_comes_after_a_text_without_calls_is_another_message(second: dict[str, Any]) -> None:
    assert [message["role"] for message in messages(said("One"), second)] == 2 * ["assistant"]


def test_a_call_that_was_cut_is_left_out() -> None:
    user = said("Go on", "user")
    found = messages(said("I look."), call("a", '{"city": "Pa', status="incomplete"), user)
    assert [message.get("tool_calls") for message in found] == [None, None]
    assert messages(call("a", '{"c', status="incomplete"), user) == messages(user)
    with pytest.raises(InvalidRequest) as caught:
        messages(call("a", '{"c', status="completed"))
    assert caught.value.param == "input[0].arguments"


def test_a_refusal_is_text_and_reasoning_of_another_server_is_left_out() -> None:
    part = {"type": "refusal", "refusal": "No."}
    hidden = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "x"}],
        "encrypted_content": "y",
    }
    found = messages(hidden, {"role": "assistant", "content": [part]})
    assert found == [{"role": "assistant", "content": "No."}]


def test_a_function_is_strict_only_if_it_says_so() -> None:
    for strict, wanted in ((None, False), (False, False), (True, True)):
        tool = {"type": "function", "name": "f", "strict": strict}
        body = chat(tools=[tool])
        tools = read_tools(body.tools, body.tool_choice, body.parallel_tool_calls)
        assert tools is not None
        assert tools.functions[0].strict is wanted


@pytest.mark.parametrize(
    "field", ["top_k", "seed", "repetition_penalty", "stop", "priority", "cache_salt", "n"]
)
def test_a_field_that_vllm_adds_to_this_api_is_refused_by_its_name(field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        chat(**{field: 1})
    error = renamed(caught.value)
    assert (error.param, error.message) == (field, f"Unknown parameter: {field}. Leave it out.")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidRequest("It is too complex."), "invalid_prompt"),
        (QueueFull("It lost its place."), "rate_limit_exceeded"),
        (RequestError("It failed."), "server_error"),
    ],
)
def test_a_stream_that_fails_has_a_code_that_openais_sdk_knows(error: RequestError, code: str) -> None:
    events = ResponseShape("resp_1", 1, "m", View()).events(Usage(1), 1).error(error)
    last = json.loads(events.split(b"data: ")[-1])
    assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", code)


def allowed(**fields: Any) -> Any:
    """The functions that the choice allows, of two."""
    tools = [{"type": "function", "name": name} for name in ("f", "g")]
    body = chat(tools=tools, tool_choice={"type": "allowed_tools", **fields})
    return read_tools(body.tools, body.tool_choice, body.parallel_tool_calls), body


def test_some_of_the_functions_are_allowed_in_the_form_of_this_api() -> None:
    choice: dict[str, Any] = {"mode": "required", "tools": [{"type": "function", "name": "g"}]}
    found, body = allowed(**choice)
    assert ([one.name for one in found.functions], found.must, len(found.shown)) == (["g"], True, 2)
    assert json.loads(encode_json(body.repeated["tool_choice"])) == {"type": "allowed_tools", **choice}
    assert not allowed(**choice | {"mode": "auto"})[0].must


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "function", "name": "f"}]}, "tool_choice.mode"),
        ({"mode": "auto"}, "tool_choice.tools"),
        ({"mode": "auto", "tools": []}, "tool_choice.tools"),
        ({"mode": "none", "tools": [{"type": "function", "name": "f"}]}, "tool_choice.mode"),
        ({"mode": "auto", "tools": [{"type": "mcp", "server_label": "x"}]}, "tool_choice.tools[0]"),
        ({"mode": "auto", "tools": [{"type": "function"}]}, "tool_choice.tools[0]"),
        ({"mode": "auto", "tools": [{"type": "function", "name": "h"}]}, "tool_choice.tools[0]"),
    ],
)
def test_a_choice_of_functions_that_is_wrong_is_named_as_the_caller_sent_it(
    fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        allowed(**fields)
    error = renamed(caught.value)
    assert error.param == param
    assert "allowed_tools." not in error.message


def test_what_a_response_repeats_has_a_bound() -> None:
    def repeated(characters: int) -> tuple[Any, Any]:
        tools = [{"type": "function", "name": "f", "description": "x" * characters}]
        told = chat(instructions="x" * characters, tools=tools, tool_choice="none").repeated
        return json.loads(bytes(told["instructions"])), json.loads(bytes(told["tools"]))

    instructions, tools = repeated(1000)
    assert (len(instructions), tools[0]["name"]) == (1000, "f")
    assert repeated(REPEATED_BYTES_MAX) == (None, [])


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_have_a_bound_streamed_too(stream: bool) -> None:
    loaded = Loaded("Fake", 10**6, 1, 1, 10, (0,), "cpu", "float32", 1, 16, 0.0)
    body = chat(include=["message.output_text.logprobs"], top_logprobs=20, stream=stream)
    with pytest.raises(InvalidRequest) as caught:
        make_sampling(body, [(1,)], loaded, SamplingDefaults(), None)
    error = renamed(caught.value)
    assert error.param == "top_logprobs"
    assert error.message.endswith("set a smaller max_output_tokens.")


def test_errors_of_the_chat_have_the_callers_names() -> None:
    error = renamed(PromptTooLong(10, 5, "messages"))
    assert error.param == "input"
    chats = InvalidRequest(
        "tools[3].function.name is wrong, or response_format.json_schema.schema.",
        param="tools[3].function.name",
    )
    assert renamed(chats).param == "tools[3].name"
    assert chats.message == "tools[3].name is wrong, or text.format.schema."
    own = InvalidRequest("Unknown parameter: max_tokens. Leave it out.", param="max_tokens")
    assert renamed(own).param == "max_tokens"
