"""How often a sequence has which tokens, for the penalties. It follows the sequence, whose tokens are only ever appended."""

from __future__ import annotations

from collections.abc import Sequence as Row

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.float32]


class Occurrences:
    """Each token once, with its count in the answer; a token of the prompt alone has the count 0. `prompt`: what counts as such;
    it is empty where no penalty looks at the prompt."""

    def __init__(self, prompt: Row[int], answer_start: int) -> None:
        self._ids: Ids = np.unique(np.array(prompt, dtype=np.int64))
        self._counts: Counts = np.zeros(len(self._ids), dtype=np.float32)
        self._known = len(self._ids)
        self._places = {token: place for place, token in enumerate(self._ids.tolist())}
        self._read = answer_start
        """so many tokens of the sequence are counted"""

    def of(self, tokens: Row[int], guesses: Row[int] = ()) -> tuple[Ids, Counts]:
        """Of a sequence's `tokens`, which are those of the last call and more, and of `guesses` after them, which are not kept.
        The arrays hold until the next call."""
        for token in tokens[self._read :]:
            self._add(token)
        self._read = len(tokens)
        if not guesses:
            return self._ids[: self._known], self._counts[: self._known]
        known, counts = self._known, self._counts[: self._known].copy()
        new: dict[int, int] = {}
        for token in guesses:
            place = self._places.get(token)
            if place is None:
                new[token] = new.get(token, 0) + 1
            else:
                counts[place] += 1
        ids = np.concatenate([self._ids[:known], np.fromiter(new.keys(), np.int64, len(new))])
        return ids, np.concatenate([counts, np.fromiter(new.values(), np.float32, len(new))])

    def _add(self, token: int) -> None:
        place = self._places.get(token)
        if place is None:
            if self._known == len(self._ids):
                self._grow()
            place = self._places[token] = self._known
            self._ids[place] = token
            self._known += 1
        self._counts[place] += 1

    def _grow(self) -> None:
        more = max(64, self._known)
        self._ids = np.concatenate([self._ids, np.zeros(more, np.int64)])
        self._counts = np.concatenate([self._counts, np.zeros(more, np.float32)])
