"""What fused modules are computed by: operators that do several of torch's in one kernel call.

engine/native_operators.py has those of CPUs, and engine/triton those of CUDA. engine/fusing.py shows for each module that they compute the same as what they replace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import nn

from llmendpoint_server.engine.attention.base import Backend

Gate = Literal["silu", "gelu_tanh"]
"""What the first half of a gated layer's outputs goes through before it is multiplied with the second."""
Turns = tuple[torch.Tensor, torch.Tensor]
"""Cosine and sine of each token's angles `[1, T, rotary]`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What a root-mean-square norm does besides: `weight` `[dim]` in float32."""

    weight: torch.Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Heads:
    """What a packed row of queries, keys and values holds: `queries` heads, then `keys` heads, then as many of values, each of `dim`."""

    queries: int
    keys: int
    dim: int


class Linear(Protocol):
    """One linear layer. `gated`: it returns `gate(first half) * second half` of its outputs, `out_features` numbers."""

    in_features: int
    out_features: int
    dtype: torch.dtype
    gated: bool

    def __call__(self, x: torch.Tensor) -> torch.Tensor: ...

    def halves(self, x: torch.Tensor) -> torch.Tensor:
        """Of a gated layer: both halves of the outputs as they are before they meet, the first one first."""
        ...

    def met(self, halves: torch.Tensor) -> torch.Tensor:
        """What the gate makes of them."""
        ...


class Operators(Protocol):
    """`multiple`: the dimensions of heads and of gated outputs must be multiples of it. `gates`: those it computes."""

    device: torch.device
    multiple: int
    gates: tuple[Gate, ...]

    def norm(self, x: torch.Tensor, scale: Scale) -> torch.Tensor: ...

    def rotate(
        self, qkv: torch.Tensor, turns: Turns, heads: Heads, norms: tuple[Scale, Scale] | None
    ) -> None:
        """Rotary embedding of queries and keys in place, after a norm of each head if there are `norms` of queries and of keys. `qkv`
        `[1, T, all heads]`."""
        ...

    def linear(self, whole: nn.Linear, gate: Gate | None) -> nn.Module | None:
        """A module that is a `Linear` and computes the layer; None if these operators do not."""
        ...

    def probe(self) -> Backend:
        """Attention with one page that may be written, to compare modules with."""
        ...

    def layers(self, layers: nn.ModuleList) -> nn.Module:
        """The `FusedLayers` that computes these, whose parts are fused and of the same shapes."""
        ...
