"""What each row of a batch asks for, as arrays: the stages know no sequence."""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.core.sequence import Sequence

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
    """Makes the arrays anew only if the parameters differ from those of the step before."""

    def __init__(self) -> None:
        self._params: list[SamplingParams] = []
        self._rows: Rows | None = None

    def __call__(
        self, sequences: Row[Sequence], device: torch.device, positions: Row[int] | None = None
    ) -> tuple[Rows, torch.Tensor]:
        """The arrays, and a number in [0, 1) for each row, float64. It depends on (seed, position) only; 0 if greedy.
        `positions`: where the row's token will stand in its sequence; None: each at its sequence's end."""
        if positions is None:
            positions = [len(sequence.tokens) for sequence in sequences]
        params = [sequence.request.sampling for sequence in sequences]
        if self._rows is None or params != self._params:
            self._params, self._rows = params, _rows(params, device)
        noise = [
            0.0 if one.greedy else uniform(sequence.seed, position)
            for one, sequence, position in zip(params, sequences, positions, strict=True)
        ]
        return self._rows, torch.tensor(noise, dtype=torch.float64, device=device)


def _rows(params: list[SamplingParams], device: torch.device) -> Rows:
    def array(values: list[float] | list[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device)

    return Rows(
        array([one.temperature for one in params], torch.float64),
        array([one.top_p for one in params], torch.float64),
        array([one.top_k for one in params], torch.int64),
        array([i for i, one in enumerate(params) if not one.greedy], torch.int64),
    )
