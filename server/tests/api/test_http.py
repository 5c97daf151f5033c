"""The API process over HTTP, with an engine that repeats its prompt: parameters, errors, streams, metrics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import httpx
import openai
import pytest

from llmendpoint_server.api.model_files import resolve_model
from llmendpoint_server.api.tokenizer import ModelTokenizer
from server.tests.server_process import ServerProcess

ASK = {"model": "chat", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8}
COMPLETE = {"model": "chat", "prompt": "Hello there", "max_tokens": 8}
TEMPLATE_TOKENS = 9
TOKENIZER = ModelTokenizer(resolve_model("embedded://demo"))


@pytest.fixture(scope="module")
def http(fake_server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=fake_server.url, timeout=30) as client:
        yield client


@pytest.fixture(scope="module")
def sdk(fake_server: ServerProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=fake_server.url + "/v1", api_key="none", max_retries=0) as client:
        yield client


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error


def events_of(response: httpx.Response) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def test_every_kind_of_message_the_sdk_can_send_as_text_is_taken(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(
        model="chat", max_completion_tokens=5, temperature=0.5, top_p=0.9, seed=3, user="u", metadata={"a": "b"}, store=False,
        n=1, presence_penalty=0, response_format={"type": "text"}, stop=["zzz"],
        messages=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            {"role": "assistant", "content": "three"},
            {"role": "user", "content": "four", "name": "me"},
        ],
    )  # fmt: skip
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_an_answer_as_the_sdk_gives_it_is_a_message_of_the_next_question(sdk: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "one"}]
    messages.append(sdk.chat.completions.create(**ASK | {"messages": messages}).choices[0].message)
    messages.append({"role": "user", "content": "two"})
    assert sdk.chat.completions.create(**ASK | {"messages": messages}).choices[0].message.content


def test_answers_carry_the_first_served_name(sdk: openai.OpenAI) -> None:
    assert sdk.chat.completions.create(**ASK).model == "team-a/chat"
    assert [model.id for model in sdk.models.list()] == ["team-a/chat", "chat"]


def test_a_streamed_answer_is_the_same_text_as_a_whole_one(sdk: openai.OpenAI) -> None:
    whole = sdk.completions.create(**COMPLETE)
    chunks = list(sdk.completions.create(**COMPLETE, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


def test_usage_is_streamed_only_when_asked_for(http: httpx.Client) -> None:
    without = events_of(http.post("/v1/chat/completions", json=ASK | {"stream": True}))
    assert without[-1] == "[DONE]"
    assert not any("usage" in event for event in without[:-1])
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, usage, done = events_of(http.post("/v1/chat/completions", json=ASK | options))
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 8
    assert usage["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"


def test_a_prompt_may_be_token_ids(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="chat", prompt=[100, 101, 102], max_tokens=3)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3


def test_a_stop_string_ends_the_answer_before_it_and_frees_the_engine(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(
        model="chat", prompt="the gateway chooses", max_tokens=2000, stop=["way ch"]
    )
    assert answer.choices[0].text == "the gate"
    assert answer.choices[0].finish_reason == "stop"


def test_a_token_that_stops_the_answer_is_no_part_of_it(sdk: openai.OpenAI) -> None:
    tokens = TOKENIZER.encode("one two three")
    stopped = sdk.completions.create(
        model="chat", prompt=tokens, max_tokens=100, extra_body={"stop_token_ids": [tokens[-1]]}
    )
    assert stopped.choices[0].text == TOKENIZER.decode(tokens[:-1])
    assert stopped.choices[0].finish_reason == "stop"


def test_a_text_too_long_for_the_model_whatever_its_tokens_is_refused_unread(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json=COMPLETE | {"prompt": "word " * 2**20})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "at least" in error["message"]
    assert "at most 2048 tokens" in error["message"]


def test_max_tokens_beyond_the_models_length_gives_what_fits(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="chat", prompt="Hello", max_tokens=100_000)
    assert answer.usage is not None
    assert answer.usage.total_tokens == 2048


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"colour": "red"}, "colour", "Unknown parameter: colour"),
        ({"n": 2}, "n", "set it to 1"),
        ({"logprobs": True}, "logprobs", "set it to false"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "set it to 0"),
        ({"temperature": 3}, "temperature", "from 0 to 2"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"top_p": 0}, "top_p", "greater than 0 and at most 1"),
        ({"max_tokens": 0}, "max_tokens", "from 1 to 2147483647"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"stop": ""}, "stop", "1 to 256"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"stream_options": {"surprise": 1}, "stream": True}, "stream_options.surprise", "Unknown parameter"),
        ({"seed": 2**70}, "seed", "seed"),
        ({"stop_token_ids": [5000]}, "stop_token_ids", "outside"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "does not support tools"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "Missing"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}]},
            "messages[0].tool_calls",
            "does not support tools",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "'image_url', and this server takes text alone",
        ),
        ({"model": None}, "model", "a string of 1 to 512"),
    ],
)
def test_a_wrong_parameter_is_a_400_that_names_it(
    http: httpx.Client, change: dict[str, Any], param: str, words: str
) -> None:
    response = http.post("/v1/chat/completions", json=ASK | change)
    error = error_of(response)
    assert response.status_code == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert words in error["message"]


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("top_k", 2**31, "from 1 to 2147483647"),
        ("top_k", 2**63, "from 1 to 2147483647"),
        ("top_k", 2**64, "from 1 to 2147483647"),
        ("top_k", 10**30, "from 1 to 2147483647"),
        ("max_tokens", 2**31, "from 1 to 2147483647"),
        ("max_tokens", 10**30, "from 1 to 2147483647"),
        ("max_tokens", True, "whole number"),
        ("seed", -(2**63) - 1, "-9223372036854775808"),
        ("stop_token_ids", [1] * 129, "at most 128"),
        ("stop_token_ids", [True], "whole numbers"),
        ("stop", ["a", ""], "1 to 256"),
        ("stop", "x" * 257, "1 to 256"),
        ("cache_salt", "x" * 257, "at most 256"),
        ("user", "x" * 513, "at most 512"),
        ("prompt_cache_key", "x" * 513, "at most 512"),
        ("metadata", {str(number): "" for number in range(17)}, "at most 16 pairs"),
        ("metadata", {"x" * 65: ""}, "at most 64"),
        ("metadata", {"x": "y" * 513}, "at most 512"),
        ("model", "x" * 513, "1 to 512"),
        ("logprobs", 0, "not supported"),
        ("echo", 0, "not supported"),
        ("n", True, "not supported"),
        ("frequency_penalty", False, "not supported"),
        ("best_of", 1.5, "not supported"),
    ],
)
def test_every_parameter_has_bounds_and_a_type_and_the_error_says_them(
    http: httpx.Client, name: str, value: Any, words: str
) -> None:
    response = http.post("/v1/completions", json=COMPLETE | {name: value})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, name)
    assert words in error["message"]
    assert http.get("/load").json()["running"] == 0


@pytest.mark.parametrize(
    ("message", "param", "words"),
    [
        ({"content": [{"type": "text", "text": ""}] * 1025}, "messages[0].content", "at most 1024"),
        ({"content": "x", "name": "n" * 257}, "messages[0].name", "at most 256"),
        ({"content": "x", "tool_call_id": "c"}, "messages[0].tool_call_id", "does not support tools"),
        ({"content": None, "function_call": {"name": "f"}}, "messages[0].function_call", "support tools"),
        ({"role": "function", "content": "x"}, "messages[0].role", "does not support tools"),
        ({"role": "x" * 1000, "content": "x"}, "messages[0].role", "'user'"),
        ({"content": [{"type": "input_audio", "input_audio": {}}]}, "messages[0].content[0].type", "text alone"),
        ({"content": None}, "messages[0].content", "a string or a list"),
    ],
)  # fmt: skip
def test_a_message_has_bounds_and_what_is_not_supported_is_said(
    http: httpx.Client, message: dict[str, Any], param: str, words: str
) -> None:
    response = http.post("/v1/chat/completions", json=ASK | {"messages": [{"role": "user"} | message]})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, param)
    assert words in error["message"]


def test_more_messages_than_allowed_are_refused_with_the_number(http: httpx.Client) -> None:
    messages = [{"role": "user", "content": ""}] * 8193
    response = http.post("/v1/chat/completions", json=ASK | {"messages": messages})
    assert (response.status_code, error_of(response)["param"]) == (400, "messages")
    assert "at most 8192" in error_of(response)["message"]


def test_all_unsupported_parameters_are_named_in_the_order_of_the_schema(http: httpx.Client) -> None:
    asked = {"tools": [{}], "response_format": {"type": "json_object"}, "logprobs": True, "n": 2}
    for given in (asked, dict(reversed(asked.items()))):
        error = error_of(http.post("/v1/chat/completions", json=ASK | given))
        assert error["message"].startswith("n, logprobs, tools, response_format are not supported")
        assert error["param"] == "n"


NULLABLE = (
    "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "stop",
    "stop_token_ids", "ignore_eos", "cache_salt", "user", "metadata", "store", "service_tier", "n", "logprobs", "tools",
    "tool_choice", "response_format", "logit_bias", "parallel_tool_calls", "reasoning_effort",
)  # fmt: skip


def test_null_is_the_same_as_left_out(http: httpx.Client) -> None:
    response = http.post("/v1/chat/completions", json=dict.fromkeys(NULLABLE) | ASK | {"max_tokens": 3})
    assert response.status_code == 200
    assert (
        http.post("/v1/chat/completions", json=ASK | {"stream_options": None, "ignore_eos": None}).status_code
        == 200
    )


@pytest.mark.parametrize(
    "body",
    [
        {"x" * 2**20: 1},
        {"messages": [{"role": "user", "content": "x", "y" * 2**20: 1}]},
        {"model": "z" * 2**20},
    ],
)
def test_an_error_stays_short_whatever_the_caller_sent(http: httpx.Client, body: dict[str, Any]) -> None:
    response = http.post("/v1/chat/completions", json=ASK | body)
    assert response.status_code == 400
    assert len(response.content) < 2000


def test_a_model_is_found_by_its_name_though_it_holds_a_slash(http: httpx.Client, sdk: openai.OpenAI) -> None:
    assert sdk.models.retrieve("team-a/chat").id == "team-a/chat"  # sent as team-a%2Fchat
    assert http.get("/v1/models/team-a/chat").json()["id"] == "team-a/chat"
    assert http.get("/v1/models/chat").json()["object"] == "model"
    missing = http.get("/v1/models/team-b/chat")
    assert (missing.status_code, error_of(missing)["code"]) == (404, "model_not_found")


def test_usage_ends_with_the_stop_string_though_later_tokens_came_with_it(http: httpx.Client) -> None:
    tokens = TOKENIZER.encode("one two three four five six")
    body = {"model": "chat", "prompt": tokens, "max_tokens": 2000, "stop": ["two"]}
    whole = http.post("/v1/completions", json=body).json()
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *_, usage, _ = events_of(http.post("/v1/completions", json=body | options))
    assert whole["choices"][0]["text"] == "one "
    # Up to the first token that completes the string, and not one more.
    least = next(n for n in range(len(tokens)) if "two" in TOKENIZER.decode(tokens[:n]))
    assert (whole["usage"]["completion_tokens"], usage["usage"]["completion_tokens"]) == (least, least)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (["a", "b"], "exactly one"),
        ([], "exactly one"),
        ("", "empty"),
        ([99999], "outside"),
        ([-1], "outside"),
        (5, "prompt"),
    ],
)
def test_a_wrong_prompt_is_a_400(http: httpx.Client, prompt: Any, words: str) -> None:
    response = http.post("/v1/completions", json=COMPLETE | {"prompt": prompt})
    assert response.status_code == 400
    assert words in error_of(response)["message"]
    assert error_of(response)["param"] == "prompt"


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"model": }', b"\xff\xfe", b"[]", b"null", b'"text"', b"{" * 100_000]
)
def test_a_body_that_is_no_json_object_is_a_400(http: httpx.Client, body: bytes) -> None:
    response = http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert "JSON" in error_of(response)["message"]


def test_a_missing_parameter_is_named(http: httpx.Client) -> None:
    assert error_of(http.post("/v1/chat/completions", json={"model": "chat"}))["param"] == "messages"


def test_a_prompt_that_is_too_long_is_refused_with_both_numbers(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        sdk.completions.create(model="chat", prompt=[100] * 3000)
    assert refusal.value.code == "context_length_exceeded"
    assert "3000" in refusal.value.message
    assert "2048" in refusal.value.message
    with pytest.raises(openai.BadRequestError, match="2048"):
        sdk.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "long words " * 20_000}]
        )


def test_an_unknown_model_is_a_404_that_lists_what_there_is(sdk: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="team-a/chat") as refusal:
        sdk.chat.completions.create(**ASK | {"model": "gpt-9"})
    assert refusal.value.code == "model_not_found"


def test_a_body_over_the_limit_is_a_413_whether_declared_or_not(http: httpx.Client) -> None:
    part = b" " * 2**20
    assert http.post("/v1/chat/completions", content=part * 33).status_code == 413
    response = http.post("/v1/chat/completions", content=(part for _ in range(33)))
    assert response.status_code == 413
    assert error_of(response)["code"] == "body_too_large"


def test_unknown_paths_and_methods_answer_in_the_same_shape(http: httpx.Client) -> None:
    assert error_of(http.get("/v1/nothing"))["message"].startswith("GET /v1/nothing")
    wrong = http.get("/v1/chat/completions")
    assert wrong.status_code == 405
    assert error_of(wrong)["type"] == "invalid_request_error"


def test_the_request_id_of_the_caller_comes_back(http: httpx.Client) -> None:
    assert http.get("/v1/models", headers={"x-request-id": "abc"}).headers["x-request-id"] == "abc"
    assert len(http.get("/v1/models").headers["x-request-id"]) == 32


def test_load_says_what_the_gateway_needs(http: httpx.Client) -> None:
    load = http.get("/load").json()
    assert set(load) == {"waiting", "running", "outstanding_tokens", "kv_usage", "max_num_seqs", "instance"}
    assert http.get("/load").json()["instance"] == load["instance"]


def test_metrics_carry_vllms_names_and_count(http: httpx.Client) -> None:
    def value(name: str) -> float:
        lines = http.get("/metrics").text.splitlines()
        return float(next(line for line in lines if line.startswith(name)).rsplit(" ", 1)[1])

    length = 'vllm:request_success_total{finished_reason="length",model_name="team-a/chat"}'
    names = (
        length,
        "vllm:time_to_first_token_seconds_count",
        "vllm:inter_token_latency_seconds_count",
        "vllm:e2e_request_latency_seconds_count",
    )
    before = [value(name) for name in names]
    http.post("/v1/chat/completions", json=ASK | {"max_tokens": 500})
    finished, first, between, whole = (value(name) - old for name, old in zip(names, before, strict=True))
    assert (finished, first, whole) == (1, 1, 1)
    assert 0 < between < 500  # tokens that arrive with the first have no time between
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "gpu_cache_usage_perc",
                 "prompt_tokens_total", "generation_tokens_total", "prefix_cache_hits_total", "num_preemptions_total"):  # fmt: skip
        assert value("vllm:" + name) >= 0


def test_the_log_has_one_line_per_request_and_never_the_prompt(
    fake_server: ServerProcess, http: httpx.Client
) -> None:
    secret = "xyzzy-plugh"
    body = ASK | {"messages": [{"role": "user", "content": secret}]}
    for stream in (False, True):
        http.post(
            "/v1/chat/completions", json=body | {"stream": stream}, headers={"x-request-id": f"log-{stream}"}
        )
    http.post(
        "/v1/chat/completions", json=body | {"n": 5, "user": secret}, headers={"x-request-id": "log-error"}
    )

    def lines_of(name: str) -> list[dict[str, Any]]:
        return [line for line in fake_server.log() if line.get("http_id") == name]

    for name in ("log-False", "log-True", "log-error"):
        found = fake_server.wait_for("the log line", partial(lines_of, name))
        assert len(found) == 1
    assert found[0]["status"] == 400
    (line,) = lines_of("log-True")
    assert (line["output_tokens"], line["finish"], line["streamed"]) == (8, "length", True)
    assert not any(secret in line for line in fake_server.lines)


def test_the_version_is_told(http: httpx.Client) -> None:
    assert http.get("/version").json()["version"]
