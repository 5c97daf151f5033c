"""The stages for a CUDA graph: every shape depends on the number of rows only, and nothing waits for the device.

The tokens are those of the other stages. `engine/triton/sampling.py` has them as kernels; these serve where Triton does not.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Row
from typing import Protocol

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.inputs import Numbers
from llmendpoint_server.engine.sampling import draws
from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER
from llmendpoint_server.engine.sampling.weights import weigh

WEIGHTS_AT_ONCE = 2**23
"""Rows are drawn in slices of at most this many weights, but at least one row. A weight takes some 50 bytes in between."""
_DIGIT_BITS = 8
_SHIFTS = (24, 16, 8, 0)


class Parameters:
    """What the rows ask for, float64 arrays `[rows]` in memory that stays where it is: temperature, top_p, top_k, noise."""

    def __init__(self, most: int, device: torch.device) -> None:
        self._numbers = Numbers(device, torch.float64)
        self._numbers.reserve(4 * most)

    def load(self, sequences: Row[Sequence], size: int, coming: int = 0) -> None:
        """Write the rows' parameters and noise, and greedy rows after them, up to `size` rows. `coming`: tokens that each sequence
        gets before it draws."""
        params = [sequence.request.sampling for sequence in sequences]
        greedy = [0.0] * (size - len(params))
        self._numbers.fill(
            [
                *(one.temperature for one in params), *greedy,
                *(one.top_p for one in params), *greedy,
                *(float(one.top_k) for one in params), *greedy,
                *(_noise(sequence, coming) for sequence in sequences), *greedy,
            ]
        )  # fmt: skip

    def array(self, size: int) -> torch.Tensor:
        """Of `size` rows, as `load` writes them: `[4, size]`."""
        return self._numbers.tensor[: 4 * size].view(4, size)


class Stages(Protocol):
    """A module that draws tokens within a graph."""

    @property
    def most_probable(self) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
        """(logits, highest, tokens): write each row's largest logit, and the first token that has it."""

    @property
    def draw(self) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, bool], None]:
        """(logits, highest, parameters, tokens, filtered): replace the tokens of rows that are not greedy."""


def _noise(sequence: Sequence, coming: int) -> float:
    return 0.0 if sequence.request.sampling.greedy else uniform(sequence.seed, len(sequence.tokens) + coming)


def most_probable(logits: torch.Tensor, highest: torch.Tensor, tokens: torch.Tensor) -> None:
    """Write each row's largest logit to `highest`, float32, NaN if the row holds one, and the first token that has it to `tokens`, int64;
    NOT_A_NUMBER if it is not finite. `logits` `[rows, vocabulary]`."""
    found, places = draws.most_probable(logits)
    highest.copy_(found)
    tokens.copy_(torch.where(found.isfinite(), places, NOT_A_NUMBER))


def draw(
    logits: torch.Tensor,
    highest: torch.Tensor,
    parameters: torch.Tensor,
    tokens: torch.Tensor,
    filtered: bool,
) -> None:
    """Replace the `tokens` of the rows that are neither greedy nor NOT_A_NUMBER. `logits` `[rows, vocabulary]`; `highest`, `tokens`: of
    `most_probable`. `parameters`: `[4, rows]` of `Parameters`. `filtered`: whether a row may ask for top_p or top_k."""
    at_once = max(1, WEIGHTS_AT_ONCE // logits.shape[1])
    found = []
    for start in range(0, len(logits), at_once):
        some = slice(start, start + at_once)
        temperature, top_p, top_k, noise = (array[some] for array in parameters)
        weights = weigh(logits[some], highest[some], temperature)
        found.append(draws.draw(cut(weights, top_p, top_k) if filtered else weights, noise))
    kept = (parameters[0] == 0) | (tokens == NOT_A_NUMBER)
    tokens.copy_(torch.where(kept, tokens, torch.cat(found)))


def cut(weights: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """What `filters.cut` keeps; the others are 0."""
    few = (top_k > 0) & (top_k < weights.shape[1])
    weights = _kept(weights, torch.ones_like(weights, dtype=torch.int64), torch.where(few, top_k, torch.inf))
    whole = weights.long()
    return _kept(weights, whole, torch.where(top_p < 1, top_p * whole.sum(-1), torch.inf))


def _kept(weights: torch.Tensor, measure: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
    """Keep the largest weights that have a `measure` of less than `goal` before them. The weight at which the goal is reached
    is found digit by digit of its bits, which are in the order of the weights."""
    bits, goal = weights.view(torch.int32), goal[:, None]
    found = torch.zeros(len(weights), 1, dtype=torch.int32, device=weights.device)
    before = torch.zeros(len(weights), 1, dtype=torch.int64, device=weights.device)
    for shift in _SHIFTS:
        alike = (bits >> min(shift + _DIGIT_BITS, 31)) == found
        digits = ((bits >> shift) & (2**_DIGIT_BITS - 1)).long()
        totals = torch.zeros(len(weights), 2**_DIGIT_BITS, dtype=torch.int64, device=weights.device)
        totals.scatter_add_(1, digits, torch.where(alike, measure, 0))
        sums = before + totals.flip(-1).cumsum(-1).flip(-1)  # of this digit and all larger ones
        digit = ((sums >= goal).sum(-1, keepdim=True) - 1).clamp_(min=0)  # 0 too if the goal is not reached
        before = sums.gather(1, digit) - totals.gather(1, digit)
        found = (found << _DIGIT_BITS) | digit.int()
    equal = bits == found
    amount = torch.where(equal, measure, 0)
    beyond = before + amount.cumsum(-1) - amount >= goal
    return weights.masked_fill((bits < found) | (equal & beyond), 0)
