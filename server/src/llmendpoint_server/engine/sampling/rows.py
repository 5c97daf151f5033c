"""What each row of a batch asks for, as arrays: the stages know no sequence."""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.core.speculation import Tokens

NOT_A_NUMBER = -1
"""Stands for a token if the logits hold a NaN or an infinity that no model should give."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Contiguous arrays `[rows]`. `temperature` float64, 0 is greedy; `top_p` float64; `top_k` int64, 0 is off."""

    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    drawn: torch.Tensor
    """int64: the rows that are not greedy"""


class RowsOfBatch:
    """Makes the arrays anew only if the parameters differ from those of the step before. Rows whose requests change the logits
    are greedy here, which costs least: they are drawn from other logits."""

    def __init__(self) -> None:
        self._params: list[SamplingParams] = []
        self._rows: Rows | None = None

    def __call__(
        self, sequences: Row[Sequence], device: torch.device, guesses: Row[Tokens] | None = None
    ) -> tuple[Rows, torch.Tensor]:
        """The arrays, and a number in [0, 1) for each row, float64; see `noise_of`. `guesses`: what stands
        between each sequence and the row's token; None: nothing."""
        params = [sequence.request.sampling for sequence in sequences]
        if self._rows is None or params != self._params:
            self._params, self._rows = params, rows_of([_plain(one) for one in params], device)
        return self._rows, noise_of(sequences, guesses or [()] * len(sequences), device)


def noise_of(sequences: Row[Sequence], guesses: Row[Tokens], device: torch.device) -> torch.Tensor:
    """float64 `[rows]`. It depends on (seed, position) only; 0 if greedy."""
    noise = [
        0.0
        if sequence.request.sampling.greedy
        else uniform(sequence.seed, len(sequence.tokens) + len(guessed))
        for sequence, guessed in zip(sequences, guesses, strict=True)
    ]
    return torch.tensor(noise, dtype=torch.float64, device=device)


def _plain(params: SamplingParams) -> SamplingParams:
    return _GREEDY if params.changes_logits else params


_GREEDY = SamplingParams(1, temperature=0)


def rows_of(params: Row[SamplingParams], device: torch.device) -> Rows:
    def array(values: list[float] | list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Rows(
        array([one.temperature for one in params], torch.float64),
        array([one.top_p for one in params], torch.float64),
        array([one.top_k for one in params], torch.int64),
        array([i for i, one in enumerate(params) if not one.greedy], torch.int64),
    )
