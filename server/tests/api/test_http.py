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
        ({"logprobs": True}, "logprobs", "not supported"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "set it to 0"),
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"top_p": 0}, "top_p", "greater than 0"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"stop": ""}, "stop", "1 to 256"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"stream_options": {"surprise": 1}, "stream": True}, "stream_options.surprise", "Unknown parameter"),
        ({"seed": 2**70}, "seed", "seed"),
        ({"stop_token_ids": [5000]}, "stop_token_ids", "outside"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role", "'user'"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "Missing"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}]},
            "messages[0].tool_calls",
            "Unknown parameter",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content[0].type",
            "'text'",
        ),
        ({"model": None}, "model", "string"),
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
