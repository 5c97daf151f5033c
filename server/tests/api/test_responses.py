"""docs/api.md: /v1/responses in OpenAI's shape, whole and streamed, over raw HTTP. The engine says what stands between marks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import response_schema_conformance, status_code_conformance

from server.tests.server_process import ServerProcess

URL = "/v1/responses"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA},
    {"type": "function", "name": "now"},
]
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
CALL_NOW = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
LOGPROBS = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    flags = ("--served-model-name", "team/demo", "--served-model-name", "demo", "--reasoning-parser", "qwen3")
    with ServerProcess(*flags, "--tool-call-parser", "hermes", fake={"speak": True}) as process:
        yield process.wait_ready()


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as client:
        yield client


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"model": "demo", "input": f"SAY<<<{text}>>>END", **more}


def post(http: httpx.Client, body: Any) -> Any:
    response = http.post(URL, json=body)
    assert response.status_code == 200, response.text
    return response.json()


def events_in(text: str) -> list[dict[str, Any]]:
    found = []
    for event in text.split("\n\n")[:-1]:
        name, data = event.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert found[-1]["type"] == name.removeprefix("event: ")
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def events(http: httpx.Client, body: dict[str, Any]) -> list[dict[str, Any]]:
    response = http.post(URL, json=body | {"stream": True})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events_in(response.text)


def assembled(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items that the events make, each event held against what came before it."""
    assert [event["type"] for event in found[:2]] == ["response.created", "response.in_progress"]
    assert found[0]["response"]["output"] == []
    items: list[dict[str, Any]] = []
    grown = ""
    scores: list[Any] = []
    for event in found[2:-1]:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(items)
            assert event["item"]["status"] == "in_progress"
            items.append(event["item"])
            grown, scores = "", []
            continue
        assert event["output_index"] == len(items) - 1
        item = items[-1]
        assert event.get("item_id", item["id"]) == item["id"]
        match kind:
            case "content_part.added":
                assert (item["content"], event["content_index"]) == ([], 0)
                item["content"].append(event["part"])
            case "output_text.delta" | "reasoning_text.delta" | "function_call_arguments.delta":
                grown += event["delta"]
                scores += event.get("logprobs", [])
            case "output_text.done" | "reasoning_text.done":
                assert event["text"] == grown
                assert event.get("logprobs", []) == scores
            case "function_call_arguments.done":
                assert event["arguments"] == grown
            case "content_part.done":
                assert event["part"]["text"] == grown
                item["content"] = [event["part"]]
            case other:
                assert other == "output_item.done"
                assert event["item"]["status"] != "in_progress"
                if item["type"] != "function_call":
                    assert event["item"]["content"] == item["content"]
                items[-1] = event["item"]
    assert found[-1]["response"]["output"] == items
    return items


def plain(response: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between two answers to one body."""
    items = [
        {name: value for name, value in item.items() if name not in ("id", "call_id")}
        for item in response["output"]
    ]
    rest = {
        name: value for name, value in response.items() if name not in ("id", "created_at", "completed_at")
    }
    return rest | {"output": items}


def kinds(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


@pytest.mark.parametrize(
    ("text", "more", "made", "status"),
    [
        ("Hello Wörld 🚀", {}, ["message"], "completed"),
        ("", {}, ["message"], "completed"),
        ("<think>Let me see.</think>It is 4.", {}, ["reasoning", "message"], "completed"),
        ("<think>Let me see.</think>It is 4.", LOGPROBS, ["reasoning", "message"], "completed"),
        (CALL, {"tools": TOOLS}, ["function_call"], "completed"),
        (f"I look.\n{CALL}\n{CALL_NOW}", {"tools": TOOLS}, ["message", "function_call", "function_call"], "completed"),
        (f"{CALL}\n{CALL_NOW}", {"tools": TOOLS, "parallel_tool_calls": False}, ["function_call"], "completed"),
        (CALL, {"tools": TOOLS, "tool_choice": "none"}, ["message"], "completed"),
        (f"<think>Hm</think>{CALL}", {"tools": TOOLS} | LOGPROBS, ["reasoning", "function_call"], "completed"),
        ("a long answer of many words", {"max_output_tokens": 3}, ["message"], "incomplete"),
        ("<think>Let me think about it.", {"max_output_tokens": 9}, ["reasoning"], "incomplete"),
        (CALL, {"tools": TOOLS, "max_output_tokens": 45}, ["function_call"], "incomplete"),
    ],
)  # fmt: skip
def test_a_response_has_the_same_items_and_usage_whole_and_streamed(
    http: httpx.Client, text: str, more: dict[str, Any], made: list[str], status: str
) -> None:
    body = says(text) | more
    whole = post(http, body)
    assert kinds(whole) == made
    assert whole["status"] == status
    assert whole["incomplete_details"] == (None if status == "completed" else {"reason": "max_output_tokens"})
    assert whole["output"][-1]["status"] == status
    found = events(http, body)
    assert found[-1]["type"] == f"response.{status}"
    assembled(found)
    assert plain(found[-1]["response"]) == plain(whole)
    assert whole["usage"]["total_tokens"] == whole["usage"]["input_tokens"] + whole["usage"]["output_tokens"]


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_characters="<>{}", exclude_categories=["C"]), max_size=20
)
SAID = st.lists(st.one_of(TEXTS, st.sampled_from([CALL, CALL_NOW])), max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(thought=st.none() | TEXTS, said=SAID, most=st.integers(1, 90), scored=st.booleans())
def test_whatever_is_said_is_the_same_streamed_and_whole_and_can_be_sent_back(
    http: httpx.Client, thought: str | None, said: list[str], most: int, scored: bool
) -> None:
    text = ("" if thought is None else f"<think>{thought}</think>") + "".join(said)
    body = says(text, tools=TOOLS, max_output_tokens=most) | (LOGPROBS if scored else {})
    whole, found = post(http, body), events(http, body)
    assert assembled(found) == found[-1]["response"]["output"]
    assert plain(found[-1]["response"]) == plain(whole)
    back = [
        {"role": "user", "content": "Hi"},
        *whole["output"],
        {"role": "user", "content": "SAY<<<Yes>>>END"},
    ]
    again = post(http, {"model": "demo", "input": back, "tools": TOOLS})
    assert again["output"][-1]["content"][0]["text"] == "Yes"


def test_a_call_goes_back_with_its_result_and_its_reasoning(http: httpx.Client) -> None:
    body = says(f"<think>Hm</think>{CALL}", tools=TOOLS)
    answer = post(http, body)
    call = answer["output"][-1]
    assert (call["name"], json.loads(call["arguments"])) == ("get_weather", {"city": "Paris"})
    for output in ("SAY<<<Sunny.>>>END", [{"type": "input_text", "text": "SAY<<<Sunny.>>>END"}]):
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": output}
        turns = [{"role": "user", "content": "What is the weather?"}, *answer["output"], result]
        assert post(http, body | {"input": turns})["output"][0]["content"][0]["text"] == "Sunny."


def test_instructions_and_items_make_the_prompt_of_the_same_chat(http: httpx.Client) -> None:
    said = [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"role": "user", "content": "One"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Two"}]},
        {"type": "function_call", "call_id": "c1", "name": "now", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "noon"},
        {"role": "user", "content": "SAY<<<Three>>>END"},
    ]
    answer = post(http, {"model": "demo", "instructions": "Be brief.", "input": said})
    call = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "Two", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "noon"},
        {"role": "user", "content": "SAY<<<Three>>>END"},
    ]
    same = http.post("/v1/chat/completions", json={"model": "demo", "messages": chat}).json()
    assert answer["usage"]["input_tokens"] == same["usage"]["prompt_tokens"]
    assert answer["usage"]["output_tokens"] == same["usage"]["completion_tokens"]
    assert answer["output"][0]["content"][0]["text"] == same["choices"][0]["message"]["content"] == "Three"


def test_what_the_answer_repeats_is_what_was_asked_and_nothing_is_stored(http: httpx.Client) -> None:
    asked = {
        "instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "top_p": 0.9, "max_output_tokens": 50,
        "parallel_tool_calls": False, "user": "me", "tool_choice": "none", "safety_identifier": "s", "prompt_cache_key": "k",
        "max_tool_calls": 2,
    }  # fmt: skip
    hints = {"service_tier": "auto", "truncation": "disabled", "store": True, "background": False}
    effort = {"reasoning": {"effort": "low", "summary": "auto"}, "text": {"verbosity": "low"}}
    answer = post(http, says("Yes.", tools=TOOLS) | asked | hints | effort)
    assert {name: answer[name] for name in asked} == asked
    assert (answer["store"], answer["truncation"], answer["service_tier"]) == (False, "disabled", "default")
    assert answer["reasoning"] == {"effort": "low", "summary": None}
    assert answer["text"] == {"format": {"type": "text"}, "verbosity": "low"}
    assert [tool["name"] for tool in answer["tools"]] == ["get_weather", "now"]
    assert (answer["object"], answer["model"], answer["error"]) == ("response", "team/demo", None)
    assert answer["id"].startswith("resp_")


def test_log_probabilities_are_those_of_the_text_alone(http: httpx.Client) -> None:
    for text in ("It is 4.", "<think>Let me see.</think>It is 4."):
        scores = post(http, says(text) | LOGPROBS)["output"][-1]["content"][0]["logprobs"]
        assert "".join(score["token"] for score in scores).removesuffix("<|im_end|>") == "It is 4."
        assert all(len(score["top_logprobs"]) == 2 for score in scores)
    assert post(http, says("Yes."))["output"][-1]["content"][0]["logprobs"] == []


def test_tokens_of_the_reasoning_are_counted(http: httpx.Client) -> None:
    def counted(text: str) -> int:
        counts: dict[str, int] = post(http, says(text))["usage"]["output_tokens_details"]
        return counts["reasoning_tokens"]

    assert counted("It is 4.") == 0
    found = [counted(f"<think>{'word ' * count}</think>It is 4.") for count in (2, 4, 6)]
    assert len({after - before for before, after in pairwise(found)}) == 1
    assert 0 < found[0] < found[1]


def test_a_stream_whose_request_is_lost_ends_with_what_failed() -> None:
    with ServerProcess("--served-model-name", "demo", fake={"lose_after": 5, "delay": 0.03}) as server:
        server.wait_ready()
        text = httpx.post(server.url + URL, json=says("x", stream=True), timeout=30).text
    *_, item, error, failed = events_in(text)
    assert (item["type"], item["item"]["status"]) == ("response.output_item.done", "incomplete")
    assert (error["type"], error["code"]) == ("error", "unavailable")
    assert (failed["type"], failed["response"]["status"]) == ("response.failed", "failed")
    assert failed["response"]["error"] == {"code": "server_error", "message": error["message"]}
    assert failed["response"]["output"] == [item["item"]]


def test_what_the_document_allows_never_ends_in_a_5xx_or_in_another_shape(server: ServerProcess) -> None:
    document = httpx.get(server.url + "/openapi.json").json()
    operation = schemathesis.openapi.from_dict(document)[URL]["POST"]

    @settings(
        max_examples=40, deadline=None, phases=[Phase.generate], database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def examine(case: Any) -> None:
        if isinstance(case.body, dict):
            case.body |= {"model": "demo", "max_output_tokens": 3}
        checks = [not_a_server_error, status_code_conformance, response_schema_conformance]
        case.call_and_validate(base_url=server.url, checks=checks, timeout=30)

    examine()


def test_a_response_has_the_shape_of_the_document(http: httpx.Client) -> None:
    document = http.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/Response", "components": document["components"]}
    for body in (
        says(f"<think>Hm</think>I look it up. {CALL}", tools=TOOLS) | LOGPROBS,
        says("a b c", max_output_tokens=1),
    ):
        jsonschema.validate(post(http, body), schema)
