"""What changes the logits of the rows that ask for it, before they become weights. In vLLM's order: the ends that `min_tokens`
rules out, `logit_bias`, `repetition_penalty`, `frequency_penalty` and `presence_penalty`, `min_p`.

It works on a float32 copy of these rows: a bias added in bfloat16 would be rounded to an eighth, and the log probabilities read
the model's own logits. Each stage reads and writes the row's own logits, elementwise, so a row does not depend on others.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Sequence as Row
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch

from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Tokens
from llmendpoint_server.engine.sampling.occurrences import Counts, Ids, Occurrences


class Line(NamedTuple):
    """One line of logits: for the token that follows the sequence and `guesses`."""

    sequence: Sequence
    guesses: Tokens

    @property
    def generated(self) -> int:
        return self.sequence.generated + len(self.guesses)


@dataclass(frozen=True, slots=True)
class _Wishes:
    """What is kept of a sequence from step to step. `ends`: tokens that end it."""

    ends: Ids
    biased: Ids
    bias: Counts
    occurrences: Occurrences | None


class Changes:
    """Keeps what each sequence has said so far, as long as the sequence lives."""

    def __init__(self) -> None:
        self._wishes: WeakKeyDictionary[Sequence, _Wishes] = WeakKeyDictionary()

    def apply(self, logits: torch.Tensor, lines: Row[Line]) -> None:
        """Change `logits` `[lines, vocabulary]`, float32, in place."""
        wishes = [self._of(line.sequence, logits.shape[1]) for line in lines]
        self._rule_out_ends(logits, lines, wishes)
        self._add_bias(logits, wishes)
        self._penalize(logits, lines, wishes)
        keep_probable(logits, lines)

    def _of(self, sequence: Sequence, vocabulary: int) -> _Wishes:
        found = self._wishes.get(sequence)
        if found is None:
            found = self._wishes[sequence] = _wishes(sequence, vocabulary)
        return found

    @staticmethod
    def _rule_out_ends(logits: torch.Tensor, lines: Row[Line], wishes: Row[_Wishes]) -> None:
        early = [
            (place, wish.ends)
            for place, (line, wish) in enumerate(zip(lines, wishes, strict=True))
            if line.generated < line.sequence.request.sampling.min_tokens and len(wish.ends)
        ]
        if early:
            logits[_places(early, logits.device)] = -math.inf

    @staticmethod
    def _add_bias(logits: torch.Tensor, wishes: Row[_Wishes]) -> None:
        biased = [(place, wish) for place, wish in enumerate(wishes) if len(wish.biased)]
        if biased:
            at = _places([(place, wish.biased) for place, wish in biased], logits.device)
            logits[at] += _tensor(np.concatenate([wish.bias for _, wish in biased]), logits.device)

    @staticmethod
    def _penalize(logits: torch.Tensor, lines: Row[Line], wishes: Row[_Wishes]) -> None:
        seen: list[tuple[int, Ids]] = []
        columns: list[Counts] = []
        """count in the answer, repetition, frequency, presence of each token that is seen"""
        for place, (line, wish) in enumerate(zip(lines, wishes, strict=True)):
            if wish.occurrences is not None:
                sampling = line.sequence.request.sampling
                ids, counts = wish.occurrences.of(line.sequence.tokens, line.guesses)
                asked = sampling.repetition_penalty, sampling.frequency_penalty, sampling.presence_penalty
                seen.append((place, ids))
                columns.append(np.stack([counts, *(np.full(len(ids), one, np.float32) for one in asked)]))
        if not seen:
            return
        at = _places(seen, logits.device)
        count, repetition, frequency, presence = _tensor(np.concatenate(columns, 1), logits.device)
        found = logits[at]
        found = torch.where(found > 0, found / repetition, found * repetition)
        logits[at] = found - frequency * count - presence * (count > 0)


def keep_probable(logits: torch.Tensor, lines: Row[Line]) -> None:
    """min_p: rule out the tokens that have less than this share of the most probable one's probability at the line's temperature.
    exp((logit - highest) / temperature) is at least min_p if the logit is at least highest + temperature * log(min_p)."""
    asked = [line.sequence.request.sampling for line in lines]
    cuts = [one.min_p > 0 and not one.greedy for one in asked]
    if any(cuts):
        below = [
            one.temperature * math.log(one.min_p) if cut else -math.inf
            for one, cut in zip(asked, cuts, strict=True)
        ]
        highest = logits.amax(-1, keepdim=True).double()
        lowest = (highest + torch.tensor(below, dtype=torch.float64, device=logits.device)[:, None]).float()
        logits.masked_fill_(logits < lowest, -math.inf)


def _wishes(sequence: Sequence, vocabulary: int) -> _Wishes:
    request, sampling = sequence.request, sequence.request.sampling
    ends = np.array(sorted(token for token in sequence.ends if 0 <= token < vocabulary), dtype=np.int64)
    biased = np.array([token for token, _ in sampling.logit_bias], dtype=np.int64)
    bias = np.array([value for _, value in sampling.logit_bias], dtype=np.float32)
    penalized = sampling.repetition_penalty != 1 or sampling.frequency_penalty or sampling.presence_penalty
    prompt = request.prompt if sampling.repetition_penalty != 1 else ()
    occurrences = Occurrences(prompt, len(request.prompt)) if penalized else None
    return _Wishes(ends, biased, bias, occurrences)


def _places(found: Iterable[tuple[int, Ids]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """An index of (line, token) pairs, each once."""
    pairs = list(found)
    lines = np.repeat([line for line, _ in pairs], [len(ids) for _, ids in pairs])
    return _tensor(lines, device), _tensor(np.concatenate([ids for _, ids in pairs]), device)


def _tensor(values: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values).to(device)
