"""docs/concepts/speculation.md: what is guessed from a sequence's own tokens, and what is kept of a guess."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmendpoint_server.core import speculation
from llmendpoint_server.core.speculation import LEARNT_AT_ONCE, NGRAMS, PromptLookup, accept, agreed

TOKENS = st.lists(st.integers(0, 3), max_size=60)


def test_what_followed_the_last_ngram_is_guessed_again() -> None:
    assert PromptLookup().propose([7, 1, 2, 8, 9, 5, 1, 2], 3) == (8, 9, 5)


def test_of_two_places_the_later_one_is_taken() -> None:
    assert PromptLookup().propose([1, 2, 3, 1, 2, 4, 1, 2], 1) == (4,)


def test_a_longer_ngram_goes_first() -> None:
    assert PromptLookup().propose([5, 6, 1, 2, 3, 9, 1, 2, 4, 5, 6, 1, 2], 1) == (3,)


def test_a_repetition_goes_on_as_far_as_is_wanted() -> None:
    assert PromptLookup().propose([3, 1, 2, 1, 2], 5) == (1, 2, 1, 2, 1)


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 4]])
def test_without_a_repetition_nothing_is_guessed(tokens: list[int]) -> None:
    assert PromptLookup().propose(tokens, 4) == ()


def searched(tokens: list[int], most: int) -> tuple[int, ...]:
    """The same by search through everything."""
    for size in NGRAMS:
        for place in range(len(tokens) - 1, size - 1, -1):
            if tokens[place - size : place] == tokens[-size:]:
                line = list(tokens)
                while len(line) < place + len(tokens) + most:
                    line.append(line[len(line) - len(tokens) + place])
                return tuple(line[place : place + most])
    return ()


@given(start=TOKENS, more=st.lists(TOKENS, max_size=5), most=st.integers(1, 7))
def test_a_guess_after_each_step_equals_a_search_through_everything(
    start: list[int], more: list[list[int]], most: int
) -> None:
    proposer, tokens = PromptLookup(), start
    for piece in [[], *more]:
        tokens = tokens + piece
        assert proposer.propose(tokens, most) == searched(tokens, most)


def test_a_long_prompt_is_learnt_in_pieces() -> None:
    proposer, tokens = PromptLookup(), list(range(2 * LEARNT_AT_ONCE))
    late = LEARNT_AT_ONCE + 9
    tokens += [late, late + 1]
    assert proposer.propose(tokens, 1) == ()
    assert proposer.propose([*tokens, late + 2], 1) == (late + 3,)


def test_old_ngrams_are_forgotten_and_new_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speculation, "NGRAMS_KEPT", 100)
    proposer, tokens = PromptLookup(), []
    for token in range(1000):
        tokens.append(token)
        proposer.propose(tokens, 1)
    forgotten = max(n for n in range(990) if proposer.propose([*tokens, n, n + 1], 1) == ())
    assert 1000 - 2 * 100 / len(NGRAMS) - 2 <= forgotten <= 1000 - 100 / len(NGRAMS)


def test_the_last_token_sampled_is_never_one_that_was_computed() -> None:
    assert agreed((1, 2), (1, 2)) == 1


TOKEN = st.integers(-1, 2)  # -1: not a number


@given(draft=st.lists(st.integers(0, 2), max_size=5).map(tuple), data=st.data())
def test_what_is_kept_is_what_steps_without_a_draft_would_have_sampled(
    draft: tuple[int, ...], data: st.DataObject
) -> None:
    """A token is sampled after the draft's tokens before it: it counts only while they were sampled too."""
    size = len(draft) + 1
    sampled = tuple(data.draw(st.lists(TOKEN, min_size=size, max_size=size)))
    kept = accept(draft, sampled)
    assert kept == sampled[: len(kept)]
    assert kept[:-1] == draft[: len(kept) - 1]
    assert len(kept) == size or kept[-1] != draft[len(kept) - 1]
    assert agreed(draft, kept) == agreed(draft, sampled) == len(kept) - 1
