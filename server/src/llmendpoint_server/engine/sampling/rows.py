"""What each row of a batch asks for, as arrays: the stages know no sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.request import SamplingParams
from llmendpoint_server.core.sequence import Sequence

_SMALLEST = torch.finfo(torch.float32).tiny
"""A temperature below it is 0 in float32."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Arrays of the rows that are drawn, `[drawn]`; the other rows are greedy."""

    places: torch.Tensor
    """where they are in the batch"""
    scale: torch.Tensor
    """of logits, float32: 2 to the power of a scaled logit is the weight"""
    top_p: torch.Tensor
    """float64"""
    top_k: torch.Tensor
    """int64, 0 is off"""

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, part: slice | torch.Tensor) -> Rows:
        return Rows(self.places[part], self.scale[part], self.top_p[part], self.top_k[part])


class RowsOfBatch:
    """Makes the arrays anew only if the parameters differ from those of the step before."""

    def __init__(self) -> None:
        self._params: list[SamplingParams] = []
        self._drawn: list[int] = []
        self._rows: Rows | None = None

    def __call__(self, sequences: Row[Sequence], device: torch.device) -> tuple[Rows, torch.Tensor]:
        """The rows that are drawn, and a number in [0, 1) for each, which depends on (seed, position) only."""
        params = [sequence.request.sampling for sequence in sequences]
        if self._rows is None or params != self._params:
            self._params = params
            self._drawn = [i for i, one in enumerate(params) if not one.greedy]
            self._rows = _rows(self._drawn, [params[i] for i in self._drawn], device)
        noise = [uniform(sequences[i].seed, len(sequences[i].tokens)) for i in self._drawn]
        return self._rows, torch.tensor(noise, dtype=torch.float64, device=device)


def _rows(places: list[int], params: list[SamplingParams], device: torch.device) -> Rows:
    scale = [math.log2(math.e) / max(one.temperature, _SMALLEST) for one in params]
    return Rows(
        torch.tensor(places, dtype=torch.int64, device=device),
        torch.tensor(scale, dtype=torch.float32, device=device),
        torch.tensor([one.top_p for one in params], dtype=torch.float64, device=device),
        torch.tensor([one.top_k for one in params], dtype=torch.int64, device=device),
    )
