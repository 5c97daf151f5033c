"""What each row of a batch asks for, as arrays: the stages know no sequence."""

from __future__ import annotations

from collections.abc import Sequence as Row
from dataclasses import dataclass

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Rows:
    """Arrays `[rows]`. `top_k` 0 is off. `noise`: one number in [0, 1) that depends on (seed, position) only."""

    temperature: torch.Tensor
    top_p: torch.Tensor
    top_k: torch.Tensor
    noise: torch.Tensor

    def __getitem__(self, part: slice) -> Rows:
        return Rows(self.temperature[part], self.top_p[part], self.top_k[part], self.noise[part])

    @property
    def cut(self) -> torch.Tensor:
        """Which rows top_p or top_k cuts."""
        return (self.top_p < 1) | (self.top_k > 0)


def rows_of(sequences: Row[Sequence], device: torch.device) -> Rows:
    params = [sequence.request.sampling for sequence in sequences]
    # A smaller temperature is 0 in float32.
    smallest = torch.finfo(torch.float32).tiny
    noise = [uniform(sequence.seed, len(sequence.tokens)) for sequence in sequences]
    return Rows(
        torch.tensor([max(p.temperature, smallest) for p in params], dtype=torch.float32, device=device),
        torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device),
        torch.tensor([p.top_k for p in params], device=device),
        torch.tensor(noise, dtype=torch.float64, device=device),
    )
