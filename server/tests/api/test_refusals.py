"""docs/contribute/contracts.md: each refusal has its status in OpenAI's shape, names the field and the bound, and is short."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from server.tests.api.over_http import ASK, COMPLETE, error_of


def test_a_text_too_long_for_the_model_whatever_its_tokens_is_refused_unread(http: httpx.Client) -> None:
    response = http.post("/v1/completions", json=COMPLETE | {"prompt": "word " * 2**20})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "at least" in error["message"]
    assert "maximum context length is 2048 tokens" in error["message"]


@pytest.mark.parametrize(
    ("change", "param", "words"),
    [
        ({"colour": "red"}, "colour", "Unknown parameter: colour"),
        ({"logprobs": 2}, "logprobs", "true or false"),
        ({"top_logprobs": 2}, "top_logprobs", "only for requests with logprobs set to true"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "from 0 to 20"),
        ({"echo": True}, "echo", "set it to false"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "only for requests without stream"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens", "from 1 to this model's length of 2048"),
        ({"truncate_prompt_tokens": 5000}, "truncate_prompt_tokens", "from 1 to this model's length of 2048"),
        ({"spaces_between_special_tokens": False}, "spaces_between_special_tokens", "set it to true"),
        ({"use_beam_search": True}, "use_beam_search", "set it to false"),
        (
            {"logprobs": True, "top_logprobs": 20, "n": 128, "max_tokens": 2000},
            "logprobs",
            "set a smaller max_tokens",
        ),
        ({"audio": {"voice": "a"}}, "audio", "not supported"),
        ({"functions": [{"name": "f"}]}, "functions", "send tools"),
        ({"function_call": "auto"}, "function_call", "send tool_choice"),
        ({"chat_template": "x"}, "chat_template", "not supported"),
        ({"frequency_penalty": 2.5}, "frequency_penalty", "a number from -2 to 2"),
        ({"presence_penalty": -2.5}, "presence_penalty", "a number from -2 to 2"),
        ({"repetition_penalty": 0}, "repetition_penalty", "a number from 0.01 to 10"),
        ({"min_p": 1.5}, "min_p", "a number from 0 to 1"),
        ({"min_tokens": -1}, "min_tokens", "a whole number from 0"),
        ({"min_tokens": 9}, "min_tokens", "max_tokens, which is 8"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "each with a number from -100 to 100"),
        ({"logit_bias": {"cat": 1}}, "logit_bias", "token ids"),
        ({"logit_bias": {"5000": 1}}, "logit_bias", "outside"),
        ({"logit_bias": {"-1": 1}}, "logit_bias", "outside"),
        ({"logit_bias": {str(n): 1 for n in range(1025)}}, "logit_bias", "at most 1024 token ids"),
        ({"temperature": 3}, "temperature", "from 0 to 2"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"top_p": 0}, "top_p", "greater than 0 and at most 1"),
        ({"max_tokens": 0}, "max_tokens", "from 1 to 2147483647"),
        ({"stop": ["a"] * 17}, "stop", "at most 16"),
        ({"stop": ""}, "stop", "1 to 256"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "stream"),
        ({"stream_options": {"surprise": 1}, "stream": True}, "stream_options.surprise", "Unknown parameter"),
        ({"seed": 2**70}, "seed", "seed"),
        ({"stop_token_ids": [5000]}, "stop_token_ids", "outside"),
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "Missing"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "Missing"),
        (
            {"messages": [{"role": "assistant", "content": "", "tool_calls": [{"id": "x"}]}]},
            "messages[0].tool_calls[0].function",
            "Missing",
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
        ("logprobs", True, "a whole number from 0 to 20 for completions"),
        ("logprobs", 21, "a whole number from 0 to 20 for completions"),
        ("echo", 0, "true or false"),
        ("max_tokens", 0, "0 is only for requests with echo"),
        ("suffix", "x", "not supported"),
        ("top_logprobs", 1, "not supported"),
        ("n", True, "a whole number from 1 to 128"),
        ("frequency_penalty", False, "a number from -2 to 2"),
        ("best_of", 1.5, "best_of must be equal to n"),
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
        ({"content": "x", "tool_calls": [{"function": {"name": "f"}}]}, "messages[0].tool_calls", "role 'assistant'"),
        ({"content": None, "function_call": {"name": "f"}}, "messages[0].function_call", "send tool_calls"),
        ({"role": "function", "content": "x"}, "messages[0].role", "role 'tool'"),
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
    asked = {"suffix": "x", "audio": {}, "prediction": {}}
    for given in (asked, dict(reversed(asked.items()))):
        error = error_of(http.post("/v1/chat/completions", json=ASK | given))
        assert error["message"].startswith("audio, prediction, suffix are not supported")
        assert error["param"] == "audio"


@pytest.mark.parametrize(
    "body",
    [
        {"x" * 2**20: 1},
        {"messages": [{"role": "y" * 2**20, "content": "x"}]},
        {"model": "z" * 2**20},
    ],
)
def test_an_error_stays_short_whatever_the_caller_sent(http: httpx.Client, body: dict[str, Any]) -> None:
    response = http.post("/v1/chat/completions", json=ASK | body)
    assert response.status_code == 400
    assert len(response.content) < 2000


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        (["a", 1], "several prompts"),
        ([], "at least one token for each"),
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


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("x-llmendpoint-deadline-ms", "soon", "a whole number of milliseconds from 1 to 86400000"),
        ("x-llmendpoint-deadline-ms", "", "a whole number"),
        ("x-llmendpoint-deadline-ms", "0", "from 1"),
        ("x-llmendpoint-deadline-ms", "-5", "from 1"),
        ("x-llmendpoint-deadline-ms", "1e3", "a whole number"),
        ("x-llmendpoint-deadline-ms", "86400001", "to 86400000"),
        ("x-llmendpoint-deadline-ms", "9" * 5000, "to 86400000"),
        ("x-llmendpoint-priority", "urgent", "must be high, normal, low"),
        ("x-llmendpoint-priority", "1", "must be high, normal, low"),
    ],
)
def test_a_wrong_header_is_a_400_that_names_it(http: httpx.Client, name: str, value: str, words: str) -> None:
    response = http.post("/v1/chat/completions", json=ASK, headers={name: value})
    error = error_of(response)
    assert (response.status_code, error["param"]) == (400, name)
    assert words in error["message"]
    assert len(error["message"]) < 200


def test_a_header_given_twice_is_a_400(http: httpx.Client) -> None:
    twice = [("x-llmendpoint-deadline-ms", "100"), ("x-llmendpoint-deadline-ms", "200")]
    assert http.post("/v1/chat/completions", json=ASK, headers=twice).status_code == 400


@pytest.mark.parametrize("priority", ["high", "Normal", "LOW"])
def test_a_request_with_a_priority_and_a_deadline_is_served(http: httpx.Client, priority: str) -> None:
    headers = {"x-llmendpoint-priority": priority, "x-llmendpoint-deadline-ms": "60000"}
    assert http.post("/v1/chat/completions", json=ASK, headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/v1/audio/speech", "text alone, no audio"),
        ("/v1/audio/transcriptions", "text alone, no audio"),
        ("/v1/images/generations", "text alone, no images"),
        ("/v1/moderations", "judges no texts"),
        ("/v1/classify", "no model of several labels"),
        ("/v1/responses/resp_1/cancel", "stores no responses"),
        ("/v1/conversations", "stores no conversations"),
        ("/v1/files", "the batch service of the chart does (batch.enabled)"),
        ("/v1/uploads", "the batch service of the chart does (batch.enabled)"),
        ("/v1/batches/batch_1/cancel", "the batch service of the chart does (batch.enabled)"),
        ("/v1/other", "Not Found"),
    ],
)
def test_a_path_that_is_not_ours_says_so(http: httpx.Client, path: str, says: str) -> None:
    response = http.post(path, json={"model": "chat", "input": "x"})
    assert response.status_code == 404
    assert says in error_of(response)["message"]
    assert path in error_of(response)["message"]
