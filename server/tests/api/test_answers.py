"""docs/api.md, "Answers": one body may ask for several answers to several prompts, and each ends by itself.

The engine repeats its prompt; answer k begins with the prompt's token k.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from typing import Any

import httpx
import openai
import pytest

from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.over_http import ASK, COMPLETE, error_of, events_of
from server.tests.api.served import load, wait_running
from server.tests.server_process import ServerProcess

TOKENIZER = ModelTokenizer(resolve_model("embedded://demo"))
WORDS = "one two three four five six seven eight nine ten"
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def text_of(prompt: str, answer: int, tokens: int) -> str:
    ids = TOKENIZER.encode(prompt)
    return TOKENIZER.decode([ids[(at + answer) % len(ids)] for at in range(tokens)])


def together(events: list[Any], field: str = "text") -> tuple[dict[int, str], dict[int, str]]:
    """Of a stream: each answer's text, and its finish reason."""
    texts: dict[int, str] = defaultdict(str)
    reasons: dict[int, str] = {}
    for event in events[:-1]:
        for choice in event["choices"]:
            at = choice["index"]
            assert at not in reasons, "a piece after the last one"
            texts[at] += choice["text"] if field == "text" else choice["delta"].get("content", "")
            if choice["finish_reason"] is not None:
                reasons[at] = choice["finish_reason"]
    return dict(texts), reasons


def test_n_answers_are_numbered_and_counted_together(fake_server: ServerProcess) -> None:
    body = COMPLETE | {"prompt": WORDS, "n": 3}
    answer = httpx.post(fake_server.url + TEXT, json=body).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in answer["choices"]] == [text_of(WORDS, at, 8) for at in range(3)]
    assert answer["usage"]["prompt_tokens"] == len(TOKENIZER.encode(WORDS))
    assert answer["usage"]["completion_tokens"] == 24


def test_n_answers_to_each_of_several_prompts_are_numbered_prompt_by_prompt(
    fake_server: ServerProcess,
) -> None:
    prompts = [WORDS, "a b c d e f", "x y z"]
    body = COMPLETE | {"prompt": prompts, "n": 2}
    answer = httpx.post(fake_server.url + TEXT, json=body).json()
    want = [text_of(prompt, at, 8) for prompt in prompts for at in range(2)]
    assert [(choice["index"], choice["text"]) for choice in answer["choices"]] == list(enumerate(want))
    assert answer["usage"]["prompt_tokens"] == sum(len(TOKENIZER.encode(prompt)) for prompt in prompts)
    assert answer["usage"]["completion_tokens"] == 48


def test_several_prompts_may_be_token_ids(fake_server: ServerProcess) -> None:
    ids = [list(TOKENIZER.encode(text)) for text in (WORDS, "a b c")]
    as_ids = httpx.post(fake_server.url + TEXT, json=COMPLETE | {"prompt": ids}).json()
    as_text = httpx.post(fake_server.url + TEXT, json=COMPLETE | {"prompt": [WORDS, "a b c"]}).json()
    assert as_ids["choices"] == as_text["choices"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TEXT, COMPLETE | {"prompt": [WORDS, "a b c"], "n": 3}),
        (TEXT, COMPLETE | {"prompt": WORDS, "n": 4, "stop": [" seven", "two"], "max_tokens": 30}),
        (CHAT, ASK | {"n": 3}),
        (CHAT, ASK | {"n": 3, "messages": [{"role": "user", "content": "naïve 🙂 日本語 " * 3}], "max_tokens": 40}),
    ],
)  # fmt: skip
def test_answers_are_the_same_streamed_and_whole(
    fake_server: ServerProcess, path: str, body: dict[str, Any]
) -> None:
    whole = httpx.post(fake_server.url + path, json=body).json()
    streaming = body | {"stream": True, "stream_options": {"include_usage": True}}
    events = events_of(httpx.post(fake_server.url + path, json=streaming))
    texts, reasons = together(events, "text" if path == TEXT else "chat")
    read = {
        choice["index"]: choice["text"] if path == TEXT else choice["message"]["content"]
        for choice in whole["choices"]
    }
    assert texts == read
    assert reasons == {choice["index"]: choice["finish_reason"] for choice in whole["choices"]}
    assert events[-1] == "[DONE]"
    cached = "prompt_tokens_details"
    assert events[-2]["usage"] | {cached: 0} == whole["usage"] | {cached: 0}
    assert events[-2]["choices"] == []


def test_no_character_of_an_answer_ends_a_line_of_a_stream(fake_server: ServerProcess) -> None:
    """Clients cut streams by Python's idea of lines, which end at more characters than those of an event stream."""
    words = "a\u2028b\u2029c\x85d\x0be\x1cf “g”"
    body = COMPLETE | {"prompt": words, "max_tokens": len(TOKENIZER.encode(words)), "stream": True}
    with httpx.stream("POST", fake_server.url + TEXT, json=body) as response:
        lines = [line for line in response.iter_lines() if line]
    assert all(line.startswith("data: ") for line in lines)
    assert "".join(json.loads(line[6:])["choices"][0]["text"] for line in lines[:-1]) == words


def test_the_first_chunk_of_each_answer_of_a_chat_has_the_role(fake_server: ServerProcess) -> None:
    events = events_of(httpx.post(fake_server.url + CHAT, json=ASK | {"n": 3, "stream": True}))
    roles = [
        choice["index"] for event in events[:-1] for choice in event["choices"] if "role" in choice["delta"]
    ]
    assert sorted(roles) == [0, 1, 2]


def test_stop_reason_is_the_stop_string_or_the_callers_token(fake_server: ServerProcess) -> None:
    by_string = httpx.post(fake_server.url + TEXT, json=COMPLETE | {"prompt": WORDS, "stop": " three"}).json()
    assert by_string["choices"][0]["stop_reason"] == " three"
    token = TOKENIZER.encode(WORDS)[3]
    by_token = httpx.post(
        fake_server.url + TEXT, json=COMPLETE | {"prompt": WORDS, "stop_token_ids": [token]}
    ).json()
    assert by_token["choices"][0]["stop_reason"] == token
    by_length = httpx.post(fake_server.url + TEXT, json=COMPLETE | {"prompt": WORDS}).json()
    assert by_length["choices"][0]["stop_reason"] is None


async def test_an_answer_that_ends_by_its_stop_string_leaves_the_engine_while_the_others_go_on() -> None:
    """Answer 1 begins after the stop string, so it goes on; answer 0 ends there."""
    with ServerProcess("--served-model-name", "demo", fake={"delay": 0.02}) as server:
        server.wait_ready()
        text = "x STOP" + " go on" * 300
        body = {
            "model": "demo",
            "prompt": text,
            "max_tokens": 400,
            "n": 2,
            "stop": ["x STOP"],
            "stream": True,
        }
        async with (
            httpx.AsyncClient(timeout=60) as client,
            client.stream("POST", server.url + TEXT, json=body) as answer,
        ):
            lines = answer.aiter_lines()  # held: when nothing holds it any more, the connection is closed
            async for line in lines:
                if '"stop_reason":"x STOP"' in line:
                    break
            wait = asyncio.to_thread(server.wait_for, "one answer", lambda: load(server)["running"] == 1, 5)
            await wait


def test_a_caller_that_leaves_frees_all_its_answers() -> None:
    with ServerProcess("--served-model-name", "demo", fake={"delay": 0.01}) as server:
        server.wait_ready()
        body = {"model": "demo", "prompt": ["a b c", "d e f"], "n": 3, "max_tokens": 1900, "stream": True}
        with httpx.stream("POST", server.url + TEXT, json=body, timeout=60):
            wait_running(server, 6)
        wait_running(server, 0)


def test_if_one_answer_is_lost_the_whole_body_fails() -> None:
    with ServerProcess("--served-model-name", "demo", fake={"lose_after": 6, "delay": 0.001}) as server:
        server.wait_ready()
        body = {"model": "demo", "prompt": ["a b c", "d e f"], "max_tokens": 20}
        whole = httpx.post(server.url + TEXT, json=body, timeout=60)
        assert whole.status_code == 503
        assert error_of(whole)["code"] == "unavailable"
        events = events_of(httpx.post(server.url + TEXT, json=body | {"stream": True}, timeout=60))
        assert events[-1]["error"]["code"] == "unavailable"
        wait_running(server, 0)


def test_prompts_that_do_not_fit_into_the_queue_are_refused_together_and_leave_nothing_behind() -> None:
    flags = ("--served-model-name", "demo", "--max-queued-requests", "2")
    with ServerProcess(*flags, fake={"delay": 0.01, "max_running": 1}) as server:
        server.wait_ready()
        body = {"model": "demo", "prompt": ["a b"] * 9, "max_tokens": 500}
        refused = httpx.post(server.url + TEXT, json=body, timeout=60)
        assert refused.status_code == 429
        assert refused.headers["retry-after"]
        server.wait_for("nothing left", lambda: load(server)["running"] + load(server)["waiting"] == 0, 10)


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"n": 0}, "n", "n must be a whole number from 1 to 128."),
        ({"n": 129}, "n", "n must be a whole number from 1 to 128."),
        ({"n": True}, "n", "n must be a whole number from 1 to 128."),
        ({"n": 2, "best_of": 3}, "best_of", "best_of must be equal to n (2)"),
        ({"prompt": []}, "prompt", "send at least one token for each"),
        ({"prompt": ["a", ""]}, "prompt", "send at least one token for each"),
        ({"prompt": ["a", 1]}, "prompt", "prompt must be a string"),
        ({"prompt": ["a"] * 257}, "prompt", "prompts times n is at most 256"),
        ({"prompt": ["a"] * 100, "n": 3}, "prompt", "with n 3 it takes at most 85"),
    ],
)  # fmt: skip
def test_what_is_too_much_or_wrong_is_refused_with_its_field(
    sdk: openai.OpenAI, fields: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        sdk.completions.create(**{"model": "chat", "prompt": "a", **fields})
    assert refusal.value.param == param
    assert words in refusal.value.message


def test_the_sdk_reads_the_answers_of_several_prompts(sdk: openai.OpenAI) -> None:
    answer = sdk.completions.create(model="chat", prompt=["one two", "three"], n=2, best_of=2, max_tokens=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]


def test_prompts_that_never_fit_into_the_queue_are_a_400() -> None:
    """429 says: try again. A client, or the batch service, would do that for ever."""
    with ServerProcess(
        "--served-model-name",
        "chat",
        "--max-queued-requests",
        "4",
        "--max-num-seqs",
        "2",
        module="llmendpoint_server.simulator",
    ) as server:
        server.wait_ready()
        for prompts, n, status in ((6, 1, 200), (3, 2, 200), (7, 1, 400), (2, 4, 400), (1, 16, 200)):
            body = {"model": "chat", "prompt": ["a b"] * prompts, "n": n, "max_tokens": 2}
            answer = httpx.post(server.url + "/v1/completions", json=body)
            assert answer.status_code == status, answer.text
            if status == 400:
                assert "at most 6 answers" in answer.json()["error"]["message"]
