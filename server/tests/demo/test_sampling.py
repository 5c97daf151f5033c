"""docs/api.md: penalties, logit_bias, min_tokens and min_p reach the draw of the real engine, through HTTP and OpenAI's SDK."""

from __future__ import annotations

from typing import Any

import openai

from llmendpoint_server.api.tokenizer import ModelTokenizer
from llmendpoint_server.weights.locate import resolve_model

TOKENIZER = ModelTokenizer(resolve_model("embedded://demo"))
PROMPT = "A pod is ready only after"


def completion(demo: openai.OpenAI, most: int = 40, temperature: float = 0, **extra: Any) -> Any:
    return demo.completions.create(
        model="demo", prompt=PROMPT, max_tokens=most, temperature=temperature, extra_body=extra
    )


def text(demo: openai.OpenAI, **asked: Any) -> str:
    return str(completion(demo, **asked).choices[0].text)


def test_a_token_with_the_largest_bias_is_all_that_is_said(demo: openai.OpenAI) -> None:
    (cat,) = TOKENIZER.encode(" model", add_special_tokens=False)
    assert text(demo, most=3, logit_bias={str(cat): 100}) == " model model model"
    plain = text(demo, most=1)
    (first,) = TOKENIZER.encode(plain, add_special_tokens=False)
    assert text(demo, most=1, logit_bias={str(first): -100}) != plain


def test_a_presence_penalty_ends_what_a_bias_would_repeat(demo: openai.OpenAI) -> None:
    (word,) = TOKENIZER.encode(" model", add_special_tokens=False)
    bias = {str(word): 12.0}
    often = text(demo, logit_bias=bias).count(" model")
    rarely = text(demo, logit_bias=bias, presence_penalty=2, frequency_penalty=2).count(" model")
    assert rarely < often


def test_a_repetition_penalty_changes_what_prompt_and_answer_repeat(demo: openai.OpenAI) -> None:
    words = text(demo, ignore_eos=True, most=80, repetition_penalty=10).split()
    again = text(demo, ignore_eos=True, most=80).split()
    assert len(set(words)) / len(words) > len(set(again)) / len(again)


def test_an_answer_has_at_least_its_min_tokens(demo: openai.OpenAI) -> None:
    short = completion(demo, most=200)
    assert short.choices[0].finish_reason == "stop"
    wanted = short.usage.completion_tokens + 20
    long = completion(demo, most=250, min_tokens=wanted)
    assert long.usage.completion_tokens >= wanted


def test_a_min_p_of_one_draws_the_greedy_answer_at_any_temperature(demo: openai.OpenAI) -> None:
    greedy = text(demo)
    assert text(demo, temperature=2, min_p=1, seed=5) == greedy
    assert text(demo, temperature=2, seed=5) != greedy
