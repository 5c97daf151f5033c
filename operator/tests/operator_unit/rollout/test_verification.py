"""docs/concepts/rollouts.md: when an answer to a prompt passes, and what is said of one that does not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.verification import (
    Judgement,
    differs_exactly,
    differs_too_much,
    judge_messages,
    parse_judgement,
    quote,
    similarity,
    unmet_expectation,
)


def test_an_answer_as_expected_passes() -> None:
    assert unmet_expectation("The answer is 42.", ("42", "answer"), r"\b\d+\b") is None
    assert unmet_expectation(" 42\n", equals="42") is None
    assert unmet_expectation("anything") is None


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"contains": ("42", "43")}, "expected to contain '43', got 'The answer is 42.'"),
        ({"matches": "^4"}, "expected to match '^4', got 'The answer is 42.'"),
        ({"equals": "42"}, "expected '42', got 'The answer is 42.'"),
        ({"matches": "(?=4)"}, "expect.matches is no RE2 expression"),
    ],
)
def test_what_is_not_met_is_said(wanted: dict[str, object], said: str) -> None:
    found = unmet_expectation("The answer is 42.", **wanted)  # type: ignore[arg-type]  # one of three
    assert found is not None
    assert found.startswith(said)


def test_an_expression_that_backtracks_for_ever_elsewhere_answers_at_once() -> None:
    assert unmet_expectation("a" * 5000, matches=r"^(a+)+$b") is not None


def test_no_more_of_an_answer_is_quoted_than_80_characters() -> None:
    assert len(quote("x" * 1000)) == 82
    assert quote("two\n  lines") == "'two lines'"
    failed = differs_exactly("y" * 1000, "x" * 1000)
    assert failed is not None
    assert len(failed) < 250


def test_exact_comparison_forgives_blanks_at_the_ends_alone() -> None:
    assert differs_exactly("Paris. ", "Paris.") is None
    assert differs_exactly("Paris", "paris") == "the old revision answers 'Paris', got 'paris'"


@pytest.mark.parametrize(
    ("one", "other", "least", "most"),
    [
        ("Paris is the capital of France.", "The capital of France is Paris", 1.0, 1.0),
        ("The capital is Paris.", "The capital is Lyon.", 0.7, 0.8),
        ("Paris is the capital of France.", "!!!!!! zx zx zx zx", 0.0, 0.0),
        ("", "", 1.0, 1.0),
        ("", "something", 0.0, 0.0),
        ("巴黎是法国的首都", "法国的首都是巴黎", 1.0, 1.0),
        ("巴黎是法国的首都", "你好", 0.0, 0.0),
        ("yes yes yes yes", "yes", 0.3, 0.5),
    ],
)
def test_similarity_is_of_words(one: str, other: str, least: float, most: float) -> None:
    assert least <= similarity(one, other) <= most


@given(st.text(), st.text())
def test_similarity_is_symmetric_and_within_bounds(one: str, other: str) -> None:
    assert 0 <= similarity(one, other) == similarity(other, one) <= 1
    assert similarity(one, one) == 1


def test_an_answer_too_unlike_the_old_one_names_figure_and_limit() -> None:
    assert differs_too_much("a b c d", "a b c d", 0.8) is None
    found = differs_too_much("a b c d", "a b x y", 0.8)
    assert found is not None
    assert found.startswith("similarity 0.50 to the old revision's answer is below 0.8")


def test_a_judge_is_asked_with_both_answers_and_the_users_instruction() -> None:
    system, user = judge_messages("Say hi", "hi", "hello", "Be strict about tone.")
    assert system["content"].endswith("Be strict about tone.")
    assert "<reference>\nhi\n</reference>" in user["content"]
    assert "<candidate>\nhello\n</candidate>" in user["content"]


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("PASS", Judgement(True, "")),
        ("**FAIL**: the answer is in German.\nMore text", Judgement(False, "the answer is in German.")),
        ("pass, both name Paris", Judgement(True, "both name Paris")),
        ("<think>PASS or FAIL?</think>\nFAIL wrong city", Judgement(False, "wrong city")),
        ("<think>never ends FAIL", None),
        ("The candidate would PASS", None),
        ("Passable", None),
        ("", None),
    ],
)
def test_a_judges_reply_is_its_first_word(reply: str, expected: Judgement | None) -> None:
    assert parse_judgement(reply) == expected
