"""Speculation by a draft model: a small model of the same vocabulary guesses how each sequence goes on.

It has pages of its own, and a sequence of its own for each answer, which follows the answer's tokens: what it computed for tokens that
were rejected is computed again, and nothing else. So it does not matter to it what happens to the answer's own pages. A guess changes no
token (core/speculation.py); a draft model that is wrong costs time alone.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence as Rows
from pathlib import Path
from typing import Any

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.blocks import BlockManager
from llmendpoint_server.core.drafting import SMALL_STEP_TOKENS
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Tokens
from llmendpoint_server.engine.runner import ModelRunner
from llmendpoint_server.errors import BadConfiguration

SEQUENCES = SMALL_STEP_TOKENS // 2
"""There are pages for so many of the longest sequences: a step has drafts for no more. Others give theirs up."""
MEMORY_SHARE = 1 / 8
"""Of the memory for the KV cache, at most."""
PROMPT_TOKENS_AT_ONCE = 512
"""A longer prompt is computed over several steps, which have no draft for it."""


class DraftModel:
    """`blocks` counts the pages of `runner`. `longest`: tokens of a sequence of the draft model."""

    def __init__(self, runner: ModelRunner, blocks: BlockManager, longest: int) -> None:
        self.runner, self.blocks, self.longest = runner, blocks, longest
        runner.backend.reserve(
            1, PROMPT_TOKENS_AT_ONCE, longest
        )  # CUDA kernels are compiled for the width of its tables
        self._holders: list[weakref.ref[Follower]] = []
        """those that may hold pages, the one that drafted last at the end"""

    def follower(self) -> Follower:
        """A Proposer for one sequence."""
        return Follower(self)

    def make_room(self, one: Follower, pages: int) -> bool:
        """Let `one` hold `pages` pages, if need be by taking those of the others. False if there are not so many at all."""
        if pages > self.blocks.pages:
            return False
        self._holders = [held for held in self._holders if held() not in (None, one)]
        need = pages - len(one.table)
        for held in list(self._holders):
            if need <= self.blocks.available:
                break
            self._holders.remove(held)
            if (other := held()) is not None:
                other.give_back()
        self._holders.append(weakref.ref(one))
        if need > 0:
            one.table += self.blocks.allocate(need)
        return True


class Follower:
    """Guesses for one sequence, greedily."""

    def __init__(self, model: DraftModel) -> None:
        self._model = model
        request = Request("draft", (0,), SamplingParams(1, temperature=0))
        self._sequence = Sequence(request, seed=0, tokens=[], names=[])
        self._given = 0
        """so many of its tokens are the answer's own; guesses follow"""
        self.table = self._sequence.table
        weakref.finalize(self, _release, model.blocks, self.table)

    def give_back(self) -> None:
        """Release the pages. All is computed again if there is another draft."""
        _release(self._model.blocks, self.table)
        self._sequence.computed = 0

    def propose(self, tokens: Rows[int], most: int) -> Tokens:
        self._follow(tokens)
        model, sequence = self._model, self._sequence
        end = len(tokens) + most - 1  # the last guess is not computed
        if end > model.longest or not model.make_room(self, -(-end // model.blocks.page_size)):
            return ()
        if sequence.remaining > PROMPT_TOKENS_AT_ONCE:
            self._run(PROMPT_TOKENS_AT_ONCE)
            return ()
        for _ in range(most):
            token = self._run(sequence.remaining)[0]
            if token < 0:
                break
            sequence.tokens.append(token)
        return tuple(sequence.tokens[self._given :])

    def _follow(self, tokens: Rows[int]) -> None:
        """Keep what was computed for the guesses that came true."""
        sequence, same = self._sequence, self._given
        while same < min(sequence.computed, len(tokens)) and sequence.tokens[same] == tokens[same]:
            same += 1
        sequence.tokens[same:] = tokens[same:]
        sequence.computed = min(sequence.computed, same, len(tokens) - 1)
        self._given = len(tokens)

    def _run(self, count: int) -> Tokens:
        """Compute the next `count` tokens; the token that follows them, if they are all that is known."""
        sequence = self._sequence
        row = Scheduled(sequence, sequence.computed, count)
        (sampled,) = self._model.runner.run(Batch((row,), 0.0))
        sequence.computed += count
        return sampled.tokens


def _release(blocks: BlockManager, table: list[int]) -> None:
    blocks.release(table)
    table.clear()


def check_vocabulary(folder: Path, draft: Path, sizes: tuple[int, int]) -> None:
    """Raises BadConfiguration if the tokens of the two models differ. `sizes`: of their vocabularies."""
    why = None
    if sizes[0] != sizes[1]:
        why = f"its vocabulary has {sizes[1]} tokens and the model's has {sizes[0]}"
    elif _tokens_of(folder) != _tokens_of(draft):
        why = "its tokenizer.json has other tokens than the model's"
    if why is not None:
        raise BadConfiguration(
            f"--draft-model cannot guess for this model: {why}. It must be of the same family, with the same tokenizer."
        )


def _tokens_of(folder: Path) -> dict[str, int] | None:
    """The ids of all tokens, by their text; None without a tokenizer.json."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        return None
    try:
        whole: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        vocabulary = whole["model"]["vocab"]
        if isinstance(vocabulary, list):  # of a unigram model: pairs of text and score
            vocabulary = {text: place for place, (text, _) in enumerate(vocabulary)}
        return {**vocabulary, **{one["content"]: one["id"] for one in whole.get("added_tokens", [])}}
    except (ValueError, KeyError, TypeError) as error:
        raise BadConfiguration(f"{path} cannot be read: {type(error).__name__}: {error}") from error
