"""docs/concepts/rollouts.md: when an answer to a prompt passes, and what is said of one that does not."""

from __future__ import annotations

from math import comb
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_operator.api.verification import Prompt
from llmendpoint_operator.core.rollout.verification import (
    Judgement,
    differs_exactly,
    differs_too_much,
    judge_messages,
    outvoted,
    parse_judgement,
    quote,
    rate_of_each,
    similarity,
    too_few_pass,
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
    failed = differs_exactly(["y" * 1000], ["x" * 1000])
    assert failed is not None
    assert len(failed) < 250


def test_exact_comparison_forgives_blanks_at_the_ends_alone() -> None:
    assert differs_exactly(["Paris. "], ["Paris."]) is None
    assert differs_exactly(["Paris"], ["paris"]) == "the old revision answers 'Paris', got 'paris'"


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
    assert differs_too_much(["a b c d"], ["a b c d"], None, 0.01) is None
    found = differs_too_much(["a b c d"], ["a b x y"], None, 0.01)
    assert found is not None
    assert found.startswith("similarity 0.50 to the old revision's answer is below 0.8")


FIRST = ["a b c d", "a b c e", "a b d e", "a c d e", "b c d e"]
"""Answers of which each pair has three of four words in common."""
OTHERS = [answer.replace("a", "v").replace("b", "w").replace("c", "x") for answer in FIRST]


def test_several_answers_are_held_against_how_much_the_old_ones_vary() -> None:
    found = differs_too_much(FIRST, OTHERS, None, 0.01)
    assert found is not None
    assert found.startswith(
        "similarity 0.32 to the old revision's answers is below 0.8 (compare.minSimilarity); its own answers reach 0.75 "
        "among themselves; 1 in 126 by chance; an old one 'a b c d', got 'v w x d'"
    )


def test_answers_that_vary_as_much_as_the_old_ones_pass_below_the_fixed_bound() -> None:
    assert differs_too_much(FIRST[:1], FIRST[1:2], None, 0.01) is not None, (
        "one answer does not show how they vary"
    )
    assert differs_too_much(FIRST, FIRST[::-1], 0.9, 0.01) is None


def test_a_similarity_that_is_always_enough_passes_however_alike_the_old_answers_are() -> None:
    old, new = ["a b c d e f g h i j"] * 8, ["a b c d e f g h i x"] * 8
    assert differs_too_much(old, new, None, 0.01) is None
    assert differs_too_much(old, new, 0.95, 0.01) is not None


def test_answers_that_always_are_the_same_are_the_clearest_finding() -> None:
    found = differs_too_much(["yes"] * 8, ["no"] * 8, None, 0.01 / 16)
    assert found is not None
    assert "; 1 in 6,435 by chance; " in found


def test_so_few_answers_that_they_cannot_reach_the_rate_fail_by_the_clearest_finding_alone() -> None:
    assert differs_too_much(["a b"] * 2, ["c d"] * 2, None, 0.01) is not None
    assert differs_too_much(["a b"] * 2, ["c d", "a b"], None, 0.01) is None


def test_an_answer_without_end_is_compared_as_far_as_an_honest_one_may_go() -> None:
    assert similarity("yes " * 100_000, "yes " * 200_000) == 1.0


@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [
        (["A", "A", "B"], ["B", "B", "A"], True),
        (["A", "B"], ["A", "C"], True),
        (["A", "B", "A"], ["A", "C", "D"], False),
    ],
)
def test_most_of_several_answers_must_be_ones_that_the_old_revision_gave(
    old: list[str], new: list[str], passes: bool
) -> None:
    found = differs_exactly(old, new)
    assert found == (
        None
        if passes
        else "2 of 3 answers are none of the old revision's; the old revision answers 'A', got 'C'"
    )


def asked(samples: int, passing: int | None = None) -> Prompt:
    return Prompt.model_validate({"name": "p", "prompt": "?", "samples": samples, "minPassing": passing})


def test_one_wrong_answer_fails_a_prompt_that_all_answers_must_pass() -> None:
    assert too_few_pass(["got 'x'"], 1, asked(1)) == "got 'x'"
    assert (
        too_few_pass(["got 'x'"], 3, asked(8))
        == "1 of 3 answers fail, 8 of 8 must pass (minPassing); got 'x'"
    )


def test_wrong_answers_are_forgiven_as_long_as_enough_others_may_pass() -> None:
    assert too_few_pass(["a", "b"], 8, asked(8, 6)) is None
    assert (
        too_few_pass(["a", "b", "c"], 3, asked(8, 6))
        == "3 of 3 answers fail, 6 of 8 must pass (minPassing); a"
    )


@pytest.mark.parametrize(
    ("good", "passing", "fail"),
    [(0.99, 8, 0.077), (0.99, 7, 0.0027), (0.95, 8, 0.34), (0.95, 7, 0.057), (0.95, 6, 0.006), (0.9, 8, 0.57), (0.9, 7, 0.19), (0.9, 6, 0.038)],
)  # fmt: skip
def test_a_good_revision_fails_min_passing_as_often_as_the_table_says(
    good: float, passing: int, fail: float
) -> None:
    failing = [n for n in range(9) if too_few_pass(["x"] * n, 8, asked(8, passing)) is not None]
    chance = sum(comb(8, n) * (1 - good) ** n * good ** (8 - n) for n in failing)
    assert chance == pytest.approx(fail, rel=0.1)


def test_half_of_the_votes_are_not_enough_against_a_revision() -> None:
    assert [outvoted(faults, 4) for faults in range(5)] == [False, False, False, True, True]
    assert outvoted(1, 1)


def test_the_prompts_that_are_tested_share_the_rate() -> None:
    def prompt(name: str, **fields: Any) -> Prompt:
        return Prompt.model_validate({"name": name, "prompt": "?", **fields})

    similar = {"mode": "Similarity"}
    prompts = [
        prompt("expects", temperature=1),
        prompt("fixed", compare=similar),
        prompt("varies", temperature=1, compare=similar),
        prompt("repeats", samples=2, compare=similar),
    ]
    assert rate_of_each(prompts, 0.01) == 0.005
    assert rate_of_each(prompts[:2], 0.01) == 0.0


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
