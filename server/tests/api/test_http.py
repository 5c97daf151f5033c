"""docs/contribute/contracts.md: the server speaks OpenAI's API with streams, usage and stop strings, and tells its load and metrics.

The engine repeats its prompt.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import openai

from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.over_http import ASK, COMPLETE, error_of, events_of
from server.tests.server_process import ServerProcess

TOKENIZER = ModelTokenizer(resolve_model("embedded://demo"))


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


def test_max_tokens_beyond_the_models_length_gives_what_fits(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="chat", prompt="Hello", max_tokens=100_000)
    assert answer.usage is not None
    assert answer.usage.total_tokens == 2048


NULLABLE = (
    "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "top_p", "top_k", "seed", "stop",
    "stop_token_ids", "ignore_eos", "cache_salt", "user", "metadata", "store", "service_tier", "n", "logprobs", "tools",
    "tool_choice", "response_format", "logit_bias", "parallel_tool_calls", "reasoning_effort",
)  # fmt: skip


def test_fields_of_a_message_that_mean_nothing_here_are_ignored(http: httpx.Client) -> None:
    control = {"cache_control": {"type": "ephemeral"}}
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "one"} | control]},
        {"role": "user", "content": "two", "id": "m1", "name": None, "tool_calls": None} | control,
        {"role": "assistant", "content": "three", "reasoning_content": "why", "reasoning": None, "refusal": None,
         "annotations": [], "audio": None, "function_call": None, "provider_specific_fields": {}},
        {"role": "user", "content": "four"},
    ]  # fmt: skip
    plain = [{"role": one["role"], "content": one["content"]} for one in messages]
    answer = http.post("/v1/chat/completions", json=ASK | {"messages": messages})
    assert answer.status_code == 200, answer.text
    same = http.post("/v1/chat/completions", json=ASK | {"messages": plain})
    assert answer.json()["choices"] == same.json()["choices"]


def test_null_is_the_same_as_left_out(http: httpx.Client) -> None:
    response = http.post("/v1/chat/completions", json=dict.fromkeys(NULLABLE) | ASK | {"max_tokens": 3})
    assert response.status_code == 200
    assert (
        http.post("/v1/chat/completions", json=ASK | {"stream_options": None, "ignore_eos": None}).status_code
        == 200
    )


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


def test_the_request_id_of_the_caller_comes_back(http: httpx.Client) -> None:
    assert http.get("/v1/models", headers={"x-request-id": "abc"}).headers["x-request-id"] == "abc"
    assert len(http.get("/v1/models").headers["x-request-id"]) == 32


def test_load_says_what_the_gateway_needs(http: httpx.Client) -> None:
    load = http.get("/load").json()
    known = {"waiting", "running", "outstanding_tokens", "kv_usage", "max_num_seqs", "instance", "adapters"}
    assert set(load) == known
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
                 "prompt_tokens_total", "generation_tokens_total", "prefix_cache_hits_total", "num_preemptions_total",
                 "spec_decode_num_drafts_total", "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"):  # fmt: skip
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
        "/v1/chat/completions", json=body | {"n": 0, "user": secret}, headers={"x-request-id": "log-error"}
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
