"""Modules of a decoder in few kernel calls: norm, gated feed-forward, attention, and a whole run of layers.

engine/fusing.py makes them where they compute the same as a family's own modules. What computes them: engine/operators.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.operators import Heads, Operators, Scale, Turns


class FusedNorm(nn.Module):
    """Root-mean-square norm."""

    def __init__(self, operators: Operators, scale: Scale) -> None:
        super().__init__()
        self.scale = scale
        self._norm = operators.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._norm(x, self.scale)


class FusedMlp(nn.Module):
    """`down(silu(gate(x)) * up(x))`, or another gate. `gate_up` is gated."""

    def __init__(self, gate_up: nn.Module, down: nn.Module) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down = down

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.down(self.gate_up(x))
        return out


class FusedAttention(nn.Module):
    """Projections, norm of queries and keys if the family has it, rotary embedding, and attention by the model's backend."""

    def __init__(
        self,
        operators: Operators,
        qkv: nn.Module,
        out: nn.Module,
        heads: Heads,
        norms: tuple[Scale, Scale] | None,
        layer: int,
        attending: Any,
        rules: Rules,
    ) -> None:
        super().__init__()
        self.qkv, self.out = qkv, out
        self.heads = heads
        self.norms = norms
        self.layer_idx = layer
        self.attending = attending
        self.rules = rules
        self._rotate = operators.rotate

    def forward(
        self, hidden_states: torch.Tensor, position_embeddings: Turns, **_: Any
    ) -> tuple[torch.Tensor, None]:
        attended = self.attend(self.qkv(hidden_states), as_read(position_embeddings, hidden_states.dtype))
        return self.out(attended), None

    def attend(self, qkv: torch.Tensor, turns: Turns) -> torch.Tensor:
        """What lies between the projections. Changes `qkv`."""
        backend, step = self.attending.work
        self._rotate(qkv, turns, self.heads, self.norms)
        heads = qkv.view(1, qkv.shape[1], -1, self.heads.dim).transpose(1, 2)
        ends = self.heads.queries, self.heads.queries + self.heads.keys
        query, key, value = heads.tensor_split(ends, 1)
        attended: torch.Tensor = backend.attend(step, self.layer_idx, query, key, value, self.rules)
        return attended.view(1, qkv.shape[1], -1)


class FusedLayers(nn.Module):
    """Decoder layers of `input_layernorm`, `self_attn`, `post_attention_layernorm` and `mlp`, all fused and of the same shapes. They
    keep the weights, and are called only while `apart` says so."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers
        self.apart: Callable[[], bool] = bool
        """whether something is added inside of the layers now"""
        first: Any = layers[0]
        self.attending = first.self_attn.attending

    def forward(self, hidden_states: torch.Tensor, position_embeddings: Turns, **more: Any) -> torch.Tensor:
        if self.apart():
            for layer in self.layers:
                hidden_states = layer(hidden_states, position_embeddings=position_embeddings, **more)
            return hidden_states
        return self.together(hidden_states, as_read(position_embeddings, hidden_states.dtype))

    @abstractmethod
    def together(self, hidden_states: torch.Tensor, turns: Turns) -> torch.Tensor:
        """What all layers make of the states, which stay as they are. `turns`: as kernels read them."""


def as_read(turns: Turns, dtype: torch.dtype) -> Turns:
    """As kernels read them."""
    cos, sin = (turn.to(dtype).contiguous() for turn in turns)
    return cos, sin
