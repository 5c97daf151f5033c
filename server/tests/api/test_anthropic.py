"""docs/api.md: /v1/messages in Anthropic's shape, whole and streamed, over raw HTTP. The engine says what stands between marks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from server.tests.server_process import ServerProcess

URL, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HEADERS = {"anthropic-version": "2023-06-01", "x-api-key": "none"}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"name": "get_weather", "description": "Weather of a city", "input_schema": SCHEMA},
    {"name": "now", "input_schema": {"type": "object", "properties": {}}},
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CALL_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ("--served-model-name", "team/demo", "--served-model-name", "demo", "--reasoning-parser", "qwen3")
    with ServerProcess(*flags, "--tool-call-parser", "hermes", fake={"speak": True}) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, headers=HEADERS, timeout=60) as client:
        yield client


def says(text: str, **more: Any) -> dict[str, Any]:
    return {
        "model": "demo",
        "max_tokens": 400,
        "messages": [{"role": "user", "content": f"SAY<<<{text}>>>END"}],
        **more,
    }


def post(http: httpx.Client, body: Any, path: str = URL) -> Any:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events(http: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = http.post(URL, json=body | {"stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    found = []
    for event in response.text.split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert found[-1]["type"] == name.removeprefix("event: ")
    return found


def assembled(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the events make, by the rules of Anthropic's documentation."""
    assert found[0]["type"] == "message_start"
    assert found[-1] == {"type": "message_stop"}
    message: dict[str, Any] = found[0]["message"]
    assert (message["content"], message["stop_reason"]) == ([], None)
    partial = ""
    growing: int | None = None
    for event in found[1:-1]:
        match event["type"]:
            case "content_block_start":
                assert growing is None
                growing, partial = event["index"], ""
                assert growing == len(message["content"])
                message["content"].append(event["content_block"])
            case "content_block_delta":
                assert event["index"] == growing
                block, delta = message["content"][-1], event["delta"]
                match delta["type"]:
                    case "text_delta":
                        block["text"] += delta["text"]
                    case "thinking_delta":
                        block["thinking"] += delta["thinking"]
                    case "input_json_delta":
                        partial += delta["partial_json"]
            case "content_block_stop":
                assert event["index"] == growing
                if message["content"][-1]["type"] == "tool_use":
                    message["content"][-1]["input"] = json.loads(partial or "{}")
                growing = None
            case "message_delta":
                assert growing is None
                message |= event["delta"]
                message["usage"] |= event["usage"]
            case other:
                assert other == "ping"
    return message


def same(whole: dict[str, Any], streamed: dict[str, Any]) -> bool:
    def plain(message: dict[str, Any]) -> dict[str, Any]:
        blocks = [
            {name: value for name, value in block.items() if name != "id"} for block in message["content"]
        ]
        return {name: value for name, value in message.items() if name != "id"} | {"content": blocks}

    return plain(whole) == plain(streamed)


@pytest.mark.parametrize(
    ("text", "more", "kinds", "reason"),
    [
        ("Hello Wörld 🚀", {}, ["text"], "end_turn"),
        ("<think>Let me see.</think>It is 4.", {}, ["thinking", "text"], "end_turn"),
        (CALL, {"tools": TOOLS}, ["tool_use"], "tool_use"),
        (f"I look it up.\n{CALL}\n{CALL_NOW}", {"tools": TOOLS}, ["text", "tool_use", "tool_use"], "tool_use"),
        (f"<think>Hm</think>{CALL}", {"tools": TOOLS}, ["thinking", "tool_use"], "tool_use"),
        ("one STOP two", {"stop_sequences": ["STOP"]}, ["text"], "stop_sequence"),
        ("a long answer of many words", {"max_tokens": 3}, ["text"], "max_tokens"),
    ],
)  # fmt: skip
def test_a_message_has_the_same_blocks_whole_and_streamed(
    http: httpx.Client, text: str, more: dict[str, Any], kinds: list[str], reason: str
) -> None:
    body = says(text) | more
    whole = post(http, body)
    assert [block["type"] for block in whole["content"]] == kinds
    assert whole["stop_reason"] == reason
    assert whole["stop_sequence"] == ("STOP" if reason == "stop_sequence" else None)
    assert (whole["type"], whole["role"], whole["model"]) == ("message", "assistant", "team/demo")
    assert whole["id"].startswith("msg_")
    assert whole["usage"]["output_tokens"] > 0
    assert same(whole, assembled(events(http, body)))


def test_a_call_has_its_input_as_an_object_and_the_rest_as_text(http: httpx.Client) -> None:
    text, call, other = post(http, says(f"I look it up.\n{CALL}\n{CALL_NOW}", tools=TOOLS))["content"]
    assert text["text"].strip() == "I look it up."
    assert (call["name"], call["input"]) == ("get_weather", {"city": "Paris"})
    assert (other["name"], other["input"]) == ("now", {})
    assert call["id"] != other["id"]


def test_a_call_goes_back_with_its_result(http: httpx.Client) -> None:
    body = says(f"<think>Hm</think>{CALL}", tools=TOOLS)
    answer = post(http, body)
    result = {
        "type": "tool_result", "tool_use_id": answer["content"][-1]["id"],
        "content": [{"type": "text", "text": "SAY<<<Sunny.>>>END"}],
    }  # fmt: skip
    question = {"role": "user", "content": "What is the weather?"}
    turns = [
        question,
        {"role": "assistant", "content": answer["content"]},
        {"role": "user", "content": [result]},
    ]
    assert post(http, body | {"messages": turns})["content"] == [{"type": "text", "text": "Sunny."}]


def test_a_system_prompt_may_be_a_text_or_blocks(http: httpx.Client) -> None:
    marks = "SAY<<<Yes.>>>END"
    for system in (marks, [{"type": "text", "text": marks, "cache_control": {"type": "ephemeral"}}]):
        body = says("x") | {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]}
        assert post(http, body | {"system": system})["content"][0]["text"] == "Yes."


def test_without_tools_or_with_choice_none_a_call_is_text(http: httpx.Client) -> None:
    for more in ({}, {"tools": TOOLS, "tool_choice": {"type": "none"}}):
        assert post(http, says(CALL, **more))["content"] == [{"type": "text", "text": CALL}]


def test_without_parallel_calls_there_is_one(http: httpx.Client) -> None:
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    answer = post(http, says(f"{CALL}\n{CALL_NOW}", tools=TOOLS, tool_choice=choice))
    assert [block["type"] for block in answer["content"]] == ["tool_use"]


def test_thinking_that_is_switched_off_is_not_shown(http: httpx.Client) -> None:
    answer = post(http, says("<think>Hm</think>Yes.", thinking={"type": "disabled"}))
    assert answer["content"] == [{"type": "text", "text": "Yes."}]


def test_an_answer_that_the_caller_has_begun_goes_on(http: httpx.Client) -> None:
    turns = [
        {"role": "user", "content": "SAY<<<green.>>>END"},
        {"role": "assistant", "content": "The colour is "},
    ]
    counted = [
        post(http, {"model": "demo", "messages": turns[:end]}, COUNT)["input_tokens"] for end in (1, 2)
    ]
    assert counted[0] < counted[1] < counted[0] + 10
    assert post(http, says("x") | {"messages": turns})["content"][0]["text"] == "green."


def test_tokens_are_counted_as_the_message_counts_them(http: httpx.Client) -> None:
    body = says("Hello", tools=TOOLS, system="Be brief.")
    usage = post(http, body)["usage"]
    counting = {name: body[name] for name in ("model", "messages", "tools", "system")}
    counted = post(http, counting, COUNT)
    assert counted == {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]}


def test_an_answer_follows_the_schema_of_output_config(demo_server: ServerProcess) -> None:
    schema = {
        "type": "object",
        "properties": {"ok": {"type": "boolean"}},
        "required": ["ok"],
        "additionalProperties": False,
    }
    body = {
        "model": "demo", "max_tokens": 50, "messages": [{"role": "user", "content": "Is it so?"}],
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
    }  # fmt: skip
    answer = httpx.post(demo_server.url + URL, json=body, timeout=60).json()
    jsonschema.validate(json.loads(answer["content"][0]["text"]), schema)


def test_what_is_not_served_may_be_null(http: httpx.Client) -> None:
    nothing = dict.fromkeys(
        ("thread", "container", "mcp_servers", "speed", "thinking", "tools", "system", "top_k")
    )
    assert post(http, says("Yes.") | nothing)["content"][0]["text"] == "Yes."


def error_of(response: httpx.Response) -> tuple[str, str]:
    body = response.json()
    assert set(body) == {"type", "error"}
    assert body["type"] == "error"
    assert set(body["error"]) == {"type", "message"}
    return body["error"]["type"], body["error"]["message"]


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("change", "says_so"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens must be"),
        ({"messages": []}, "at least 1"),
        ({"messages": [{"role": "system", "content": "x"}]}, "messages[0].role must be 'user' or 'assistant'"),
        ({"temperature": 3}, "temperature must be"),
        ({"top_k": -1}, "top_k must be"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"n": 2}, "Unknown parameter: n"),
        (user(IMAGE), "messages[0].content[0].type is 'image', and this server takes text alone"),
        (user({"type": "text"}), "messages[0].content[0].text"),
        (user({"type": "tool_result"}), "messages[0].content[0].tool_use_id"),
        (user({"type": "tool_result", "tool_use_id": "a", "content": [IMAGE]}), "messages[0].content[0].content[0].type"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a"}]}]}, "content[0].name"),
        (
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": [1]}]}]},
            "content[0].input must be an object",
        ),
        ({"tools": [{"name": "a"}]}, "tools[0].input_schema"),
        ({"tools": [{"name": "a b", "input_schema": SCHEMA}]}, "tools[0].name must be"),
        ({"tools": [{"name": "a", "input_schema": {"type": "array"}}]}, "tools[0].input_schema.type"),
        ({"tools": [{"name": "web_search", "type": "web_search_20250305"}]}, "tools[0].type"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool"}}, "tool_choice.name"),
        ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "x"}}, "not in tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice is only for requests with tools"),
        ({"thinking": {"type": "on"}}, "thinking"),
        ({"thread": {"type": "create"}}, "thread=False"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers is not supported"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort must be"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {"type": 7}}}}, "output_config.format.schema"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_an_error_of_anthropics_shape_that_names_the_field(
    http: httpx.Client, change: dict[str, Any], says_so: str
) -> None:
    response = http.post(URL, json=says("x") | change)
    assert response.status_code == 400, response.text
    kind, message = error_of(response)
    assert kind == "invalid_request_error"
    assert says_so in message


def test_other_errors_have_anthropics_names_too(http: httpx.Client) -> None:
    response = http.post(URL, json=says("x") | {"model": "other"})
    assert (response.status_code, error_of(response)[0]) == (404, "not_found_error")
    response = http.post(URL, content=b"{")
    assert (response.status_code, error_of(response)[0]) == (400, "invalid_request_error")
    response = http.post(URL, json=says("word " * 5000))
    assert (response.status_code, error_of(response)[0]) == (400, "invalid_request_error")


def test_a_full_queue_and_a_replica_that_loads_say_when_to_come_back() -> None:
    body = {"model": "demo", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
    with ServerProcess("--served-model-name", "demo", fake={"stay_loading": True}) as server:
        response = httpx.post(server.url + URL, json=body)
    assert (response.status_code, error_of(response)[0]) == (503, "overloaded_error")
    assert response.headers["retry-after"] == "1"
    assert response.headers["x-llmendpoint-retriable"] == "1"


def test_a_stream_whose_request_is_lost_ends_with_an_error_event() -> None:
    body = {
        "model": "demo",
        "max_tokens": 50,
        "stream": True,
        "messages": [{"role": "user", "content": "Hi"}],
    }
    with ServerProcess("--served-model-name", "demo", fake={"lose_after": 5, "delay": 0.03}) as server:
        server.wait_ready()
        text = httpx.post(server.url + URL, json=body, timeout=30).text
    last = text.split("\n\n")[-2]
    assert last.startswith("event: error\n")
    assert json.loads(last.partition("data: ")[2])["error"]["type"] == "overloaded_error"


@pytest.mark.parametrize("path", [URL, COUNT])
def test_what_the_document_allows_never_ends_in_a_5xx_or_in_another_shape(
    server: ServerProcess, path: str
) -> None:
    document = httpx.get(server.url + "/openapi.json").json()
    operation = schemathesis.openapi.from_dict(document)[path]["POST"]

    @settings(
        max_examples=40, deadline=None, phases=[Phase.generate], database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def examine(case: Any) -> None:
        if isinstance(case.body, dict):
            case.body |= {"model": "demo"} | ({"max_tokens": 3} if path == URL else {})
        checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
        case.call_and_validate(base_url=server.url, checks=checks, timeout=30)

    examine()


def test_a_message_has_the_shape_of_the_document(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/AnthropicAnswer", "components": document["components"]}
    jsonschema.validate(post(http, says(f"<think>Hm</think>I look it up. {CALL}", tools=TOOLS)), schema)
