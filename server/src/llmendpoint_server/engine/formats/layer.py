"""What a format is asked, and gets: the tensors of one layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from llmendpoint_server.engine.formats.groups import BadWeights, Groups


@dataclass(frozen=True, slots=True)
class Stored:
    """Tensors of one layer by the last part of their names. `name`: the layer's."""

    name: str
    tensors: Mapping[str, torch.Tensor]

    def get(self, part: str) -> torch.Tensor:
        """Raises BadWeights if it is missing."""
        try:
            return self.tensors[part]
        except KeyError:
            raise BadWeights(
                f"there is no {self.name}.{part} beside {self.name}.{next(iter(self.tensors))}"
            ) from None

    def full(self, part: str) -> str:
        return f"{self.name}.{part}"


class Format(Protocol):
    """How a checkpoint stores the weights of some of its layers."""

    title: str
    """for the log and for people, such as `GPTQ, 4 bits`"""
    parts: frozenset[str]
    """last parts of names that only quantized layers have, `weight` not among them"""

    def decode(self, layer: Stored) -> Groups | torch.Tensor:
        """The weight of a layer that has some of `parts`: as groups, or in float32 `[outputs, inputs]` if groups do not hold it.
        Raises BadWeights."""
