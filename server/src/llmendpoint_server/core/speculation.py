"""Speculative decoding: tokens guessed ahead, so that one step can give a sequence several tokens.

A `Proposer` guesses a draft. The step computes the draft's tokens beside the newest token, and samples a token at each of those
positions, each with the noise of its own position, as steps without a draft would do one by one. `accept` keeps these tokens as long as
the draft has guessed them, and the one after them.

This is exact, and needs no probabilities. The draft changes no token: a token that is kept was sampled after tokens that were sampled too,
so it is the same function of logits, seed and position as without speculation. And it is rejection sampling (Leviathan et al., 2023;
Chen et al., 2023) for a draft that is certain of its tokens: that accepts a guess d with probability p(d), and draws the token from the
others of p if not. Here x is drawn from p and compared with d: it is d with probability p(d), and one of the others if not.

A draft model or a head of the model is a Proposer too: one that hands out what the device has computed for it. `accept` stays as it is. If
such a draft is sampled with the same noise (`core.randomness`), it is accepted more often.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows
from typing import Protocol

Tokens = tuple[int, ...]

NGRAMS = (4, 2)
"""Lengths of the n-grams that are looked up, the longest first."""
LEARNT_AT_ONCE = 1024
"""Tokens of a long prompt are learnt over several steps, this many in each, which takes half a millisecond."""
NGRAMS_KEPT = 16_384
"""A sequence remembers at least this many of its newest n-grams, and about twice as many at most, which take 5 MB."""


class Proposer(Protocol):
    """Guesses how one sequence goes on."""

    def propose(self, tokens: Rows[int], most: int) -> Tokens:
        """At most `most` tokens that may follow `tokens`, or none. `tokens` is what it was at the last call, and more."""


class PromptLookup:
    """Guesses that what followed the sequence's last n-gram before follows it again, as in an answer that quotes its prompt.

    It looks at a bounded number of tokens a call, however long the sequence is.
    """

    def __init__(self) -> None:
        self._learnt = 0
        """the first so many tokens are known as what follows an n-gram"""
        self._newer: dict[Tokens, int] = {}
        """where the token stands that follows an n-gram, the last time"""
        self._older: dict[Tokens, int] = {}

    def propose(self, tokens: Rows[int], most: int) -> Tokens:
        self._learn(tokens)
        for size in NGRAMS:
            ngram = tuple(tokens[-size:])
            place = self._newer.get(ngram) or self._older.get(ngram)
            if place is not None:
                return _copy(tokens, place, most)
        return ()

    def _learn(self, tokens: Rows[int]) -> None:
        end = min(len(tokens), self._learnt + LEARNT_AT_ONCE)
        for place in range(self._learnt, end):
            for size in NGRAMS:
                if place >= size:
                    self._newer[tuple(tokens[place - size : place])] = place
        self._learnt = end
        if len(self._newer) >= NGRAMS_KEPT:
            self._older, self._newer = self._newer, {}


def _copy(tokens: Rows[int], place: int, most: int) -> Tokens:
    """What stands at `place`. If the tokens end before `most`, they repeat from `place` on: "a b a b" goes on with "a b"."""
    known = tokens[place : place + most]
    return tuple(known[i % len(known)] for i in range(most))


def agreed(draft: Tokens, sampled: Tokens) -> int:
    """How many tokens of the draft were sampled. The last of `sampled` never counts: it has no keys and values yet."""
    most = min(len(draft), len(sampled) - 1)
    return next((place for place in range(most) if draft[place] != sampled[place]), most)


def accept(draft: Tokens, sampled: Tokens) -> Tokens:
    """The tokens to keep of those sampled after the newest token and after each token of the draft."""
    return sampled[: agreed(draft, sampled) + 1]
