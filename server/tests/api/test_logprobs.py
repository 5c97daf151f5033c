"""docs/api.md: log probabilities, echoes and token ids in OpenAI's and vLLM's shapes, streamed and whole.

The engine repeats its prompt. Each token has log probability -1; the alternatives are token 5 with -0.5, 6 with -1.5, and so on.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import httpx
import openai
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from llmendpoint_server.api.token_texts import TokenTexts
from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.weights.locate import resolve_model
from server.tests.api.over_http import ASK, COMPLETE, error_of, events_of
from server.tests.server_process import ServerProcess

TOKENIZER = ModelTokenizer(resolve_model("embedded://demo"))
WORDS = "one two three four five"
IDS = list(TOKENIZER.encode(WORDS))
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


def texts(ids: list[int]) -> list[str]:
    return [TOKENIZER.token(token)[0] for token in ids]


def post(http: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed_choices(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """What the chunks of each answer hold together: text, lists of log probabilities, token ids."""
    joined: dict[int, dict[str, Any]] = defaultdict(lambda: {"text": "", "token_ids": [], "logprobs": {}})
    for event in events_of(http.post(path, json=body | {"stream": True}))[:-1]:
        for choice in event["choices"]:
            into = joined[choice["index"]]
            into["text"] += choice["text"] if path == TEXT else choice["delta"].get("content", "")
            into["token_ids"] += choice.get("token_ids", [])
            for name, values in (choice["logprobs"] or {}).items():
                if values is not None:
                    into["logprobs"][name] = into["logprobs"].get(name, []) + values
    return joined


def test_a_chat_shows_each_token_with_its_alternatives_and_bytes(sdk: openai.OpenAI) -> None:
    answer = sdk.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": "naïve"}], max_tokens=6, logprobs=True, top_logprobs=2
    )  # fmt: skip
    assert answer.choices[0].logprobs is not None
    content = answer.choices[0].logprobs.content
    assert content is not None
    assert answer.usage is not None
    assert len(content) == answer.usage.completion_tokens == 6
    for entry in content:
        assert entry.logprob == -1
        assert [(top.token, top.logprob) for top in entry.top_logprobs] == [
            (TOKENIZER.token(5)[0], -0.5),
            (TOKENIZER.token(6)[0], -1.5),
        ]
    text = b"".join(bytes(entry.bytes or ()) for entry in content).decode(errors="replace")
    assert answer.choices[0].message.content is not None
    assert text.endswith(answer.choices[0].message.content)


def test_a_chat_without_top_logprobs_shows_the_token_alone(http: httpx.Client) -> None:
    choice = post(http, CHAT, ASK | {"logprobs": True})["choices"][0]
    assert [entry["top_logprobs"] for entry in choice["logprobs"]["content"]] == [[]] * 8


def test_a_text_shows_tokens_offsets_and_alternatives(http: httpx.Client) -> None:
    choice = post(http, TEXT, COMPLETE | {"prompt": WORDS, "logprobs": 1, "max_tokens": 4})["choices"][0]
    told = choice["logprobs"]
    assert told["tokens"] == texts(IDS[:4])
    assert told["token_logprobs"] == [-1] * 4
    lengths = [len(text) for text in told["tokens"]]
    assert told["text_offset"] == [sum(lengths[:at]) for at in range(4)]
    assert told["top_logprobs"][0] == {TOKENIZER.token(5)[0]: -0.5, told["tokens"][0]: -1}


def test_logprobs_0_shows_the_chosen_token_alone(http: httpx.Client) -> None:
    told = post(http, TEXT, COMPLETE | {"prompt": WORDS, "logprobs": 0, "max_tokens": 2})["choices"][0]
    assert told["logprobs"]["top_logprobs"] == [{text: -1.0} for text in texts(IDS[:2])]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (TEXT, COMPLETE | {"prompt": [WORDS, "naïve 🙂 日本"], "n": 2, "logprobs": 2, "max_tokens": 30}),
        (TEXT, COMPLETE | {"prompt": WORDS, "logprobs": 1, "echo": True, "max_tokens": 9}),
        (TEXT, COMPLETE | {"prompt": WORDS, "logprobs": 1, "stop": " four", "return_token_ids": True}),
        (CHAT, ASK | {"logprobs": True, "top_logprobs": 3, "n": 2, "max_tokens": 20, "return_token_ids": True}),
    ],
)  # fmt: skip
def test_log_probabilities_are_the_same_streamed_and_whole(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    whole = post(http, path, body)
    joined = streamed_choices(http, path, body)
    for choice in whole["choices"]:
        streamed = joined[choice["index"]]
        text = choice["text"] if path == TEXT else choice["message"]["content"]
        assert streamed["text"] == text
        assert streamed["logprobs"] == {
            name: values for name, values in choice["logprobs"].items() if values is not None
        }
        assert streamed["token_ids"] == choice.get("token_ids", [])


def test_an_echo_begins_each_answer_with_its_prompt(http: httpx.Client) -> None:
    body = COMPLETE | {"prompt": [WORDS, "a b c"], "n": 2, "echo": True}
    plain = post(http, TEXT, body | {"echo": False})
    answer = post(http, TEXT, body)
    want = [
        prompt + choice["text"]
        for prompt, choice in zip([WORDS, WORDS, "a b c", "a b c"], plain["choices"], strict=True)
    ]
    assert [choice["text"] for choice in answer["choices"]] == want
    assert answer["usage"]["completion_tokens"] == plain["usage"]["completion_tokens"]
    assert [entry["text"] for entry in streamed_choices(http, TEXT, body).values()]


def test_an_echo_of_token_ids_is_their_text(http: httpx.Client) -> None:
    answer = post(http, TEXT, COMPLETE | {"prompt": IDS, "echo": True})
    assert answer["choices"][0]["text"].startswith(WORDS)


def test_an_echo_with_logprobs_has_those_of_the_prompt_as_evaluations_need_them(http: httpx.Client) -> None:
    body = COMPLETE | {"prompt": WORDS, "echo": True, "logprobs": 1, "max_tokens": 1, "n": 2}
    for choice in post(http, TEXT, body)["choices"]:
        told = choice["logprobs"]
        assert told["tokens"][: len(IDS)] == texts(IDS)
        assert told["token_logprobs"] == [None] + [-1.0] * len(IDS)
        assert told["top_logprobs"][0] is None
        assert len(told["text_offset"]) == len(IDS) + 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_echo_may_have_no_answer(http: httpx.Client, stream: bool) -> None:
    body = COMPLETE | {"prompt": WORDS, "echo": True, "logprobs": 0, "max_tokens": 0}
    if stream:
        choice = streamed_choices(http, TEXT, body)[0]
    else:
        whole = post(http, TEXT, body)
        choice = whole["choices"][0]
        assert whole["usage"]["completion_tokens"] == 0
        assert choice["finish_reason"] == "length"
    assert choice["text"] == WORDS
    assert choice["logprobs"]["tokens"] == texts(IDS)


def test_prompt_logprobs_are_vllms(http: httpx.Client) -> None:
    body = {"prompt_logprobs": 1, "max_tokens": 1}
    chat = post(http, CHAT, ASK | body)
    text = post(http, TEXT, COMPLETE | {"prompt": WORDS, "n": 2} | body)
    assert chat["prompt_logprobs"][0] is None
    assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
    for choice in text["choices"]:
        first, second, *_ = choice["prompt_logprobs"]
        assert first is None
        assert second["5"] == {"logprob": -0.5, "rank": 1, "decoded_token": TOKENIZER.token(5)[0]}
        assert (second[str(IDS[1])]["logprob"], second[str(IDS[1])]["rank"]) == (-1, 2)
        assert choice["logprobs"] is None


def test_token_ids_of_prompt_and_answers_are_shown_on_demand(http: httpx.Client) -> None:
    text = post(http, TEXT, COMPLETE | {"prompt": WORDS, "return_token_ids": True, "max_tokens": 3})
    assert text["choices"][0]["token_ids"] == IDS[:3]
    assert text["choices"][0]["prompt_token_ids"] == IDS
    chat = post(http, CHAT, ASK | {"return_token_ids": True})
    assert len(chat["prompt_token_ids"]) == chat["usage"]["prompt_tokens"]
    assert len(chat["choices"][0]["token_ids"]) == 8
    first, *rest = events_of(http.post(CHAT, json=ASK | {"return_token_ids": True, "stream": True}))[:-1]
    assert first["prompt_token_ids"] == chat["prompt_token_ids"]
    assert not any("prompt_token_ids" in event for event in rest)


def test_tokens_may_be_named_by_their_ids(http: httpx.Client) -> None:
    body = {"return_tokens_as_token_ids": True}
    text = post(http, TEXT, COMPLETE | {"prompt": WORDS, "logprobs": 1, "max_tokens": 2} | body)
    assert text["choices"][0]["logprobs"]["tokens"] == [f"token_id:{token}" for token in IDS[:2]]
    chat = post(http, CHAT, ASK | {"logprobs": True, "top_logprobs": 1} | body)
    assert chat["choices"][0]["logprobs"]["content"][0]["top_logprobs"][0]["token"] == "token_id:5"


def test_usage_may_be_in_every_chunk(http: httpx.Client) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    events = events_of(http.post(CHAT, json=ASK | {"stream": True, "stream_options": options}))
    counts = [event["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == sorted(counts)
    assert counts[-1] == 8
    assert all(count >= 1 for count in counts)


def test_a_stop_string_may_be_part_of_the_text(http: httpx.Client) -> None:
    body = COMPLETE | {"prompt": WORDS, "stop": " three", "max_tokens": 20}
    without = post(http, TEXT, body)
    with_it = post(http, TEXT, body | {"include_stop_str_in_output": True})
    assert with_it["choices"][0]["text"] == without["choices"][0]["text"] + " three"
    assert with_it["usage"] | {"prompt_tokens_details": 0} == without["usage"] | {"prompt_tokens_details": 0}


def test_a_stop_token_may_be_part_of_the_text(http: httpx.Client) -> None:
    body = COMPLETE | {"prompt": WORDS, "stop_token_ids": [IDS[3]]}
    without = post(http, TEXT, body)["choices"][0]["text"]
    with_it = post(http, TEXT, body | {"include_stop_str_in_output": True})["choices"][0]["text"]
    assert with_it == without + TOKENIZER.token(IDS[3])[0]


def test_no_stop_string_is_looked_for_in_the_first_min_tokens(http: httpx.Client) -> None:
    body = COMPLETE | {"prompt": WORDS, "stop": " two", "max_tokens": 3 * len(IDS)}
    first = TOKENIZER.decode(IDS).index(" two")
    assert len(post(http, TEXT, body)["choices"][0]["text"]) == first
    later = post(http, TEXT, body | {"min_tokens": len(IDS)})["choices"][0]
    assert later["text"].count(" two") == 1
    assert later["stop_reason"] == " two"


def test_special_tokens_are_shown_on_demand(http: httpx.Client) -> None:
    prompt = [*IDS, 1]
    hidden = post(http, TEXT, COMPLETE | {"prompt": prompt, "ignore_eos": True, "max_tokens": len(prompt)})
    shown = post(
        http, TEXT, COMPLETE | {"prompt": prompt, "skip_special_tokens": False, "max_tokens": len(prompt)}
    )
    assert shown["choices"][0]["text"] == hidden["choices"][0]["text"] + TOKENIZER.token(1)[0]
    assert TOKENIZER.token(1)[0].strip()


def test_only_the_last_tokens_of_a_prompt_are_kept_on_demand(http: httpx.Client) -> None:
    body = {"truncate_prompt_tokens": 3, "return_token_ids": True}
    text = post(http, TEXT, COMPLETE | {"prompt": [WORDS, "x " + WORDS]} | body)
    assert [choice["prompt_token_ids"] for choice in text["choices"]] == [IDS[-3:]] * 2
    assert text["usage"]["prompt_tokens"] == 6
    chat = post(http, CHAT, ASK | body)
    assert chat["usage"]["prompt_tokens"] == 3


def test_the_beginning_of_the_answer_may_be_left_out_of_a_chats_prompt(http: httpx.Client) -> None:
    body = ASK | {"return_token_ids": True}
    usual = post(http, CHAT, body)["prompt_token_ids"]
    without = post(http, CHAT, body | {"add_generation_prompt": False})["prompt_token_ids"]
    assert len(without) < len(usual)
    assert usual[: len(without)] == without


def test_hints_of_openai_and_vllm_are_taken(http: httpx.Client) -> None:
    hints = {
        "user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "prompt_cache_key": "k",
        "prompt_cache_retention": "24h", "safety_identifier": "s", "verbosity": "low", "reasoning_effort": "high", "priority": -5,
        "parallel_tool_calls": True, "spaces_between_special_tokens": True, "use_beam_search": False, "suffix": None,
    }  # fmt: skip
    post(http, CHAT, ASK | hints)
    post(http, TEXT, COMPLETE | hints | dict.fromkeys(("logprobs", "echo", "n", "best_of", "stop")))


def test_a_part_of_a_character_has_its_bytes() -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    texts = TokenTexts(tokenizer)
    ids = tokenizer.encode("日a").ids
    assert [texts.of(token) for token in ids] == [
        ("bytes:\\xe6", b"\xe6"),
        ("bytes:\\x97", b"\x97"),
        ("bytes:\\xa5", b"\xa5"),
        ("a", b"a"),
    ]


def test_a_token_of_a_metaspace_vocabulary_keeps_its_space() -> None:
    vocabulary = {"a": 0, "▁a": 1, "<0xE6>": 2, "▁": 3}
    tokenizer = Tokenizer(models.BPE(vocabulary, [("▁", "a")], byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    texts = TokenTexts(tokenizer)
    assert texts.of(1) == (" a", b" a")
    assert texts.of(0) == ("a", b"a")
    assert texts.of(2) == ("bytes:\\xe6", b"\xe6")


def test_the_simulator_serves_answers_with_log_probabilities() -> None:
    with ServerProcess("--served-model-name", "chat", module="llmendpoint_server.simulator") as server:
        http = httpx.Client(base_url=server.wait_ready().url, timeout=30)
        body = {"n": 2, "logprobs": True, "top_logprobs": 2, "max_tokens": 5}
        whole = post(http, CHAT, ASK | body)
        assert len(whole["choices"]) == 2
        for choice in whole["choices"]:
            assert all(len(entry["top_logprobs"]) == 2 for entry in choice["logprobs"]["content"])
        streamed = streamed_choices(http, CHAT, ASK | body)
        assert {at: one["text"] for at, one in streamed.items()} == {
            choice["index"]: choice["message"]["content"] for choice in whole["choices"]
        }
        echo = post(http, TEXT, COMPLETE | {"echo": True, "logprobs": 1, "max_tokens": 2, "n": 2})
        assert all(choice["logprobs"]["token_logprobs"][0] is None for choice in echo["choices"])


@pytest.mark.parametrize("stop", [None, [" the", "."]])
def test_drawn_answers_of_the_real_engine_are_the_same_streamed_and_whole(
    demo: openai.OpenAI, stop: Any
) -> None:
    asked: dict[str, Any] = {
        "model": "demo", "messages": [{"role": "user", "content": "¿Qué es 日本? 🙂"}], "n": 3, "seed": 5, "max_tokens": 24,
        "logprobs": True, "temperature": 1, "stop": stop,
    }  # fmt: skip
    whole = demo.chat.completions.create(**asked)
    texts, reasons, counts = ["", "", ""], ["", "", ""], [0, 0, 0]
    usage = None
    for chunk in demo.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            reasons[choice.index] = choice.finish_reason or ""
            counts[choice.index] += len((choice.logprobs and choice.logprobs.content) or ())
    assert [choice.message.content for choice in whole.choices] == texts
    assert [choice.finish_reason for choice in whole.choices] == reasons
    assert whole.usage is not None
    assert usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens == sum(counts)
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_the_engines_log_probabilities_are_those_of_the_text(demo: openai.OpenAI) -> None:
    """Scored again as a prompt, each token of an answer has nearly the log probability that it was given."""
    answer = demo.completions.create(
        model="demo", prompt="What is this project?", max_tokens=12, temperature=0, logprobs=2,
        extra_body={"return_token_ids": True},
    ).choices[0]  # fmt: skip
    assert answer.logprobs is not None
    extra: Any = answer.model_extra
    ids = extra["prompt_token_ids"] + extra["token_ids"]
    again = demo.completions.create(model="demo", prompt=ids, max_tokens=0, echo=True, logprobs=0).choices[0]
    assert again.logprobs is not None
    assert again.logprobs.token_logprobs is not None
    assert answer.logprobs.token_logprobs is not None
    given = answer.logprobs.token_logprobs
    for one, other in zip(given, again.logprobs.token_logprobs[-len(given) :], strict=True):
        assert one == pytest.approx(other, abs=0.1)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"echo": True, "logprobs": 20, "n": 128}, "logprobs"),
        ({"echo": True, "logprobs": 20, "n": 128, "stream": True}, "logprobs"),
        ({"prompt_logprobs": 20, "n": 128}, "prompt_logprobs"),
        ({"prompt_logprobs": 20, "prompt": [[5] * 1900] * 28}, "prompt_logprobs"),
    ],
)
def test_what_a_prompt_shows_counts_with_each_of_its_answers(
    http: httpx.Client, fields: dict[str, Any], param: str
) -> None:
    """10 kB would ask for 300 MB."""
    body = {"model": "chat", "prompt": [5] * 1900, "max_tokens": 1}
    error = error_of(http.post("/v1/completions", json=body | fields))
    assert error["param"] == param
    assert "at most 1048576 are given" in error["message"]
