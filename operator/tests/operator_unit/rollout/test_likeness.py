"""docs/concepts/verdicts.md: answers that vary are told from answers that got worse, and wrongly as rarely as it says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import combinations
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmendpoint_operator.core.rollout.likeness import finest, weigh
from llmendpoint_operator.core.rollout.verification import differs_too_much, similarity

RUNS = 2000
WORDS = [f"w{number}" for number in range(12)]


def near(one: float, other: float) -> float:
    """Of numbers between 0 and 1."""
    return 1 - abs(one - other)


def by_definition(old: Sequence[float], new: Sequence[float]) -> float:
    """The chance, from each division's separation itself."""
    answers, size = [*old, *new], len(old)

    def separation(first: tuple[int, ...]) -> float:
        second = [i for i in range(len(answers)) if i not in first]
        within = [near(answers[i], answers[j]) for i, j in combinations(first, 2)]
        between = [near(answers[i], answers[j]) for i in first for j in second]
        return sum(within) / len(within) - sum(between) / len(between)

    seen = separation(tuple(range(size)))
    divisions = [separation(first) for first in combinations(range(len(answers)), size)]
    return sum(one >= seen - 1e-9 for one in divisions) / len(divisions)


def answer(drawn: random.Random, words: Sequence[str] = WORDS) -> str:
    """Eight words, of which the first are the most frequent."""
    return " ".join(drawn.choices(words, weights=range(len(words), 0, -1), k=8))


hundredths = st.integers(0, 100).map(lambda number: number / 100)
groups = st.lists(hundredths, min_size=2, max_size=5)


@given(groups, st.lists(hundredths, min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_the_chance_is_the_share_of_divisions_that_separate_as_much(
    old: list[float], new: list[float]
) -> None:
    found = weigh(old, new, near)
    assert found.chance == pytest.approx(by_definition(old, new))
    assert 1 / comb(len(old) + len(new), len(old)) <= found.chance <= 1


@given(groups, groups, st.randoms())
def test_the_order_of_the_answers_does_not_matter(
    old: list[float], new: list[float], drawn: random.Random
) -> None:
    assert weigh(old, new, near) == weigh(drawn.sample(old, len(old)), drawn.sample(new, len(new)), near)


texts = st.lists(st.lists(st.sampled_from("abcd"), max_size=6).map(" ".join), min_size=2, max_size=5)


@given(texts, st.randoms())
def test_answers_that_are_the_old_ones_again_are_a_tie_and_no_failure(
    old: list[str], drawn: random.Random
) -> None:
    assert differs_too_much(old, drawn.sample(old, len(old)), 1.0, 0.49) is None


@given(texts, texts, st.floats(0.001, 0.49))
def test_no_answers_fail_that_are_as_like_the_old_ones_as_those_are_like_each_other(
    old: list[str], new: list[str], rate: float
) -> None:
    found = weigh(old, new, similarity)
    if found.to_old >= found.among_old:
        assert differs_too_much(old, new, 1.0, rate) is None


def test_a_tie_passes_even_where_the_rate_would_let_it_fail() -> None:
    old, new = ["a", "b", "b"], ["a", "a", "a"]
    found = weigh(old, new, similarity)
    assert (found.to_old, found.chance) == (found.among_old, 0.4)
    assert differs_too_much(old, new, 1.0, 0.49) is None


@pytest.mark.parametrize(("samples", "one_in"), [(2, 3), (3, 10), (4, 35), (5, 126), (6, 462), (7, 1716), (8, 6435), (9, 24310), (10, 92378)])  # fmt: skip
def test_the_clearest_finding_of_so_many_samples_is_the_one_of_the_table(samples: int, one_in: int) -> None:
    found = weigh(["yes"] * samples, ["no"] * samples, similarity)
    assert found.chance == finest(samples, samples) == pytest.approx(1 / one_in)


@pytest.mark.parametrize(("samples", "rate"), [(5, 0.01), (5, 0.1), (6, 0.01)])
def test_a_revision_that_answers_like_the_old_one_fails_as_rarely_as_stated(
    samples: int, rate: float
) -> None:
    drawn, failed = random.Random(f"{samples}/{rate}"), 0
    for _ in range(RUNS):
        old, new = ([answer(drawn) for _ in range(samples)] for _ in range(2))
        failed += differs_too_much(old, new, 1.0, rate) is not None
    assert failed <= RUNS * rate + 2.33 * (RUNS * rate * (1 - rate)) ** 0.5, (
        "more than chance in one of 100 series"
    )


def test_the_old_fixed_bound_would_fail_most_of_them() -> None:
    drawn = random.Random(1)
    alone = [differs_too_much([answer(drawn)], [answer(drawn)], None, 0.01) is not None for _ in range(200)]
    assert sum(alone) > 100


@pytest.mark.parametrize(("others", "least"), [(8, 95), (4, 60)])
def test_the_more_words_of_a_model_are_other_ones_the_surer_it_fails(others: int, least: int) -> None:
    """Of 100 revisions that use other words in place of the `others` most frequent ones."""
    drawn = random.Random(7)
    strange = [f"x{number}" for number in range(others)] + WORDS[others:]
    failed = 0
    for _ in range(100):
        old, new = [answer(drawn) for _ in range(8)], [answer(drawn, strange) for _ in range(8)]
        failed += differs_too_much(old, new, None, 0.01 / 16) is not None
    assert failed >= least


def test_one_old_answer_does_not_show_how_much_answers_vary() -> None:
    with pytest.raises(ValueError, match="two and one are the fewest"):
        weigh(["a"], ["b"], similarity)
