"""Launches the kernels. Nothing here waits for the device, so that a CUDA graph can hold it."""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import nn

from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.fused import FusedLayers
from llmendpoint_server.engine.operators import Gate, Heads, Operators, Scale, Turns
from llmendpoint_server.engine.triton import kernels

_GATE_BLOCK = 512
_HEADS_BLOCK = 4


class TritonOperators(Operators):
    """For states in `dtype`."""

    multiple = 2
    gates = ("silu", "gelu_tanh")

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.device, self._dtype = device, dtype

    def norm(self, x: torch.Tensor, scale: Scale) -> torch.Tensor:
        x = x.contiguous()
        out, dim = torch.empty_like(x), x.shape[-1]
        if rows := x.numel() // dim:
            block = triton.next_power_of_2(dim)
            kernels.norm[(rows,)](x, scale.weight, out, dim, scale.eps, block, num_warps=_warps(block))
        return out

    def add_norm(
        self, x: torch.Tensor, residual: torch.Tensor, scale: Scale
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The sum, and its norm."""
        x, residual = x.contiguous(), residual.contiguous()
        added, out, dim = torch.empty_like(x), torch.empty_like(x), x.shape[-1]
        if rows := x.numel() // dim:
            block = triton.next_power_of_2(dim)
            kernels.add_norm[(rows,)](
                x, residual, scale.weight, added, out, dim, scale.eps, block, num_warps=_warps(block)
            )
        return added, out

    def rotate(
        self, qkv: torch.Tensor, turns: Turns, heads: Heads, norms: tuple[Scale, Scale] | None
    ) -> None:
        cos, sin = turns
        rows, rotary = qkv.shape[1], cos.shape[-1]
        if not rows:
            return
        query, key = norms or (Scale(cos, 0.0), Scale(cos, 0.0))  # not read
        kernels.rotate[(rows, triton.cdiv(heads.queries + heads.keys, _HEADS_BLOCK))](
            qkv, cos, sin, query.weight, key.weight, query.eps, key.eps, qkv.shape[-1],
            heads.queries, heads.keys, heads.dim, rotary, norms is not None, _HEADS_BLOCK,
            triton.next_power_of_2(max(1, rotary // 2)), triton.next_power_of_2(max(1, heads.dim - rotary)),
            num_warps=2,
        )  # fmt: skip

    def gate(self, halves: torch.Tensor, kind: Gate) -> torch.Tensor:
        """`kind` of the first half of each row, times the second."""
        halves = halves.contiguous()
        width = halves.shape[-1] // 2
        out = halves.new_empty(*halves.shape[:-1], width)
        if rows := out.numel() // width:
            grid = rows, triton.cdiv(width, _GATE_BLOCK)
            kernels.gate[grid](halves, out, width, kind == "silu", _GATE_BLOCK)
        return out

    def linear(self, whole: nn.Linear, gate: Gate | None) -> nn.Module | None:
        return CudaLinear(whole) if gate is None else GatedLinear(whole, gate, self)

    def probe(self) -> Backend:
        return Gathered(1, PAGE_SIZE, self.device, self._dtype)

    def layers(self, layers: nn.ModuleList) -> FusedLayers:
        return LayersInTurn(layers, self)


def _warps(block: int) -> int:
    return min(16, max(1, block // 512))


class CudaLinear(nn.Module):
    """A `Linear` by torch."""

    gated = False

    def __init__(self, whole: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = whole.weight, whole.bias
        self.out_features, self.in_features = whole.weight.shape
        self.dtype = whole.weight.dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias)


class GatedLinear(CudaLinear):
    """A `Linear` that is gated."""

    gated = True

    def __init__(self, whole: nn.Linear, gate: Gate, operators: TritonOperators) -> None:
        super().__init__(whole)
        self.out_features //= 2
        self._gate, self._operators = gate, operators

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.met(self.halves(x))

    def halves(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)

    def met(self, halves: torch.Tensor) -> torch.Tensor:
        return self._operators.gate(halves, self._gate)


class LayersInTurn(FusedLayers):
    """One after another. What a part adds to the states is added by the kernel that makes the norm for the next part."""

    def __init__(self, layers: nn.ModuleList, operators: TritonOperators) -> None:
        super().__init__(layers)
        self._operators = operators

    def together(self, hidden_states: torch.Tensor, turns: Turns) -> torch.Tensor:
        layers: list[Any] = list(self.layers)
        scales = [layer.input_layernorm.scale for layer in layers]
        normed = self._operators.norm(hidden_states, scales[0])
        for layer, after in zip(layers, [*scales[1:], None], strict=True):
            attention = layer.self_attn
            attended = attention.out(attention.attend(attention.qkv(normed), turns))
            between = layer.post_attention_layernorm.scale
            hidden_states, normed = self._operators.add_norm(attended, hidden_states, between)
            change = layer.mlp(normed)
            if after is None:
                return hidden_states + change
            hidden_states, normed = self._operators.add_norm(change, hidden_states, after)
        return hidden_states
