"""docs/api.md: a caller counts tokens, and sees them, as the model's own tokenizer makes them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from llmendpoint_server import limits
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.over_http import error_of
from server.tests.server_process import ServerProcess

THEIRS = AutoTokenizer.from_pretrained(resolve_model("embedded://demo"))
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <b>"},
]
MOST = limits.tokens_counted(2048)


def ask(http: httpx.Client, body: dict[str, Any], path: str = "/tokenize") -> Any:
    response = http.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize("special", [True, False])
def test_a_text_has_the_tokens_that_transformers_gives_it(http: httpx.Client, special: bool) -> None:
    text = "What is this project? Ünïcode 🚀\n"
    answer = ask(http, {"model": "chat", "prompt": text, "add_special_tokens": special})
    tokens = THEIRS.encode(text, add_special_tokens=special)
    assert answer == {"count": len(tokens), "max_model_len": 2048, "tokens": tokens, "token_strs": None}


def test_special_tokens_are_added_to_a_text_unless_the_caller_says_no(http: httpx.Client) -> None:
    assert ask(http, {"prompt": "Hi"})["tokens"] == THEIRS.encode("Hi")
    assert ask(http, {"prompt": "Hi", "add_special_tokens": None})["tokens"] == THEIRS.encode("Hi")


@pytest.mark.parametrize("begin", [True, False])
def test_a_chat_has_the_tokens_of_the_models_template(http: httpx.Client, begin: bool) -> None:
    answer = ask(http, {"model": "chat", "messages": CHAT, "add_generation_prompt": begin})
    text = THEIRS.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=begin)
    assert answer["tokens"] == THEIRS.encode(text, add_special_tokens=False)


def test_a_chat_has_as_many_tokens_as_its_completion_says(http: httpx.Client) -> None:
    counted = ask(http, {"model": "chat", "messages": CHAT})["count"]
    completed = http.post("/v1/chat/completions", json={"model": "chat", "messages": CHAT, "max_tokens": 1})
    assert completed.json()["usage"]["prompt_tokens"] == counted


TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [TOOL]},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"messages": [*CHAT, {"role": "assistant", "content": "So"}], "continue_final_message": True,
         "add_generation_prompt": False},
        {"messages": [*CHAT, {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "now"}}]},
                      {"role": "tool", "tool_call_id": "a", "content": "noon"}]},
    ],
)  # fmt: skip
def test_all_that_makes_a_chats_prompt_is_counted(http: httpx.Client, fields: dict[str, Any]) -> None:
    body = {"model": "chat", "messages": CHAT} | fields
    completed = http.post("/v1/chat/completions", json=body | {"max_tokens": 1}).json()
    assert ask(http, body)["count"] == completed["usage"]["prompt_tokens"]


def test_tokens_are_shown_as_the_vocabulary_has_them(http: httpx.Client) -> None:
    answer = ask(http, {"prompt": "Hello there", "return_token_strs": True})
    assert answer["token_strs"] == THEIRS.convert_ids_to_tokens(answer["tokens"])


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_both_paths_are_served_with_and_without_a_version(http: httpx.Client, prefix: str) -> None:
    tokens = ask(http, {"model": "chat", "prompt": "one two"}, f"{prefix}/tokenize")["tokens"]
    assert ask(http, {"model": "chat", "tokens": tokens}, f"{prefix}/detokenize")["prompt"].endswith(
        "one two"
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=80))
def test_any_text_comes_back_from_its_tokens(http: httpx.Client, text: str) -> None:
    tokens = ask(http, {"prompt": text, "add_special_tokens": False})["tokens"]
    assert ask(http, {"tokens": tokens}, "/detokenize")["prompt"] == text


def test_special_tokens_are_part_of_the_text_of_tokens(http: httpx.Client) -> None:
    tokens = ask(http, {"messages": CHAT})["tokens"]
    text = THEIRS.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert ask(http, {"tokens": tokens}, "/detokenize")["prompt"] == text


@pytest.mark.parametrize(
    ("path", "body", "param", "says"),
    [
        ("/tokenize", {}, "prompt", "Missing parameter"),
        ("/tokenize", {"prompt": 7}, "prompt", "must be a string"),
        ("/tokenize", {"prompt": "a", "messages": CHAT}, "messages", "send one of them"),
        ("/tokenize", {"prompt": "a", "tools": [{}]}, "tools", "is for a chat"),
        ("/tokenize", {"messages": CHAT, "tools": [{}]}, "tools", "must be a list"),
        ("/tokenize", {"messages": CHAT, "chat_template_kwargs": 7}, "chat_template_kwargs", "an object"),
        ("/tokenize", {"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt", "is for a chat"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": "yes"}, "add_special_tokens", "true or false"),
        ("/tokenize", {"prompt": "a", "stream": True}, "stream", "Unknown parameter"),
        ("/tokenize", {"messages": []}, "messages", "at least 1"),
        ("/tokenize", {"messages": [{"role": "me", "content": "a"}]}, "messages[0].role", "'user'"),
        ("/detokenize", {}, "tokens", "Missing parameter"),
        ("/detokenize", {"tokens": "a"}, "tokens", "list of token ids"),
        ("/detokenize", {"tokens": [1761]}, "tokens", "0 to 1760"),
        ("/detokenize", {"tokens": [1.5]}, "tokens", "list of token ids"),
        ("/detokenize", {"tokens": [-1]}, "tokens", "0 to 1760"),
        ("/detokenize", {"tokens": [2**63]}, "tokens", "0 to 1760"),
        ("/detokenize", {"tokens": [2**70]}, "tokens", "0 to 1760"),
        ("/detokenize", {"tokens": [5] * (MOST + 1)}, "tokens", f"at most {MOST}"),
        ("/tokenize", {"prompt": "a b " * MOST}, "prompt", f"more than {MOST} tokens"),
    ],
)  # fmt: skip
def test_a_wrong_body_is_refused_with_its_field(
    http: httpx.Client, path: str, body: Any, param: str, says: str
) -> None:
    response = http.post(path, json=body)
    assert response.status_code == 400, response.text
    error = error_of(response)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert says in error["message"]


def test_an_unknown_model_is_not_found(http: httpx.Client) -> None:
    for path, body in (("/tokenize", {"prompt": "a"}), ("/detokenize", {"tokens": [5]})):
        response = http.post(path, json={"model": "other", **body})
        assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")


def test_a_text_longer_than_the_models_length_is_counted(http: httpx.Client) -> None:
    text = "one two three " * 10_000
    assert ask(http, {"prompt": text})["count"] == len(THEIRS.encode(text)) > 2048


def test_nothing_is_counted_before_the_model_is_loaded() -> None:
    with ServerProcess("--served-model-name", "chat", fake={"stay_loading": True}) as server:
        response = httpx.post(server.url + "/tokenize", json={"prompt": "a"})
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
