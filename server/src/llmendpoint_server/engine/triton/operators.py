"""Launches the kernels. Nothing here waits for the device, so that a CUDA graph can hold it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import torch
import triton
from torch import nn

from llmendpoint_server.engine.attention.base import Backend
from llmendpoint_server.engine.attention.cache import PAGE_SIZE
from llmendpoint_server.engine.attention.gathered import Gathered
from llmendpoint_server.engine.fused import FusedLayers
from llmendpoint_server.engine.operators import Gate, Heads, Operators, Scale, Turns
from llmendpoint_server.engine.triton import kernels
from llmendpoint_server.engine.triton.few import few

FEW_ROWS = 4
"""A linear layer of up to so many rows is a kernel of ours, of more rows torch's: 29 us a layer of Qwen3-0.6B at 4 rows on an H200 where
torch's take 40, and 51 at 8 rows where torch's take 37."""
_GATE_BLOCK = 512
_HEADS_BLOCK = 4
_MOST_INPUTS = 8192
"""A layer of more inputs makes no norm of them."""
_BLOCK_NUMBERS = 16_384
"""Of weights, in the registers of four warps."""
_PROGRAMS = 256
"""As many keep all multiprocessors of a large GPU busy."""
_WARPS = 4


@dataclass(frozen=True, slots=True)
class Weights:
    """Of a linear layer. `gate`: what is over its outputs, or None."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    gate: Gate | None = None


class TritonOperators(Operators):
    """For states in `dtype`. `few_rows`: as `FEW_ROWS`, at most 8. `ahead`: kernels of few rows ask for their weights before the kernel before them has
    ended, which a device of compute capability 9 or later can do."""

    multiple = 2
    gates = ("silu", "gelu_tanh")

    def __init__(
        self, device: torch.device, dtype: torch.dtype, few_rows: int = FEW_ROWS, ahead: bool = False
    ) -> None:
        self.device, self._dtype = device, dtype
        self.few_rows, self._ahead = few_rows, ahead

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

    def few(
        self,
        x: torch.Tensor,
        weights: Weights,
        scale: Scale | None = None,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """A linear layer of `few_rows` rows or fewer, of their norm if there is a `scale`, and with `residual` added to it."""
        weight, bias, gate = weights.weight, weights.bias, weights.gate
        x, inputs = x.contiguous(), weight.shape[1]
        outputs = len(weight) // 2 if gate else len(weight)
        if scale is not None and inputs > _MOST_INPUTS:
            x, scale = self.norm(x, scale), None
        out = x.new_empty(*x.shape[:-1], outputs)
        if rows := x.numel() // inputs:
            blocks = _blocks(outputs, inputs, gate is not None, scale is not None)
            more = {"launch_pdl": True} if self._ahead else {}
            few[(triton.cdiv(outputs, blocks[0]),)](
                x, weight, x if bias is None else bias, x if scale is None else scale.weight,
                x if residual is None else residual.contiguous(), out, rows, outputs,
                0.0 if scale is None else scale.eps,
                inputs, triton.next_power_of_2(rows), scale is not None, residual is not None,
                bias is not None, gate is not None, gate == "silu", self._ahead, *blocks, num_warps=_WARPS, **more,
            )  # fmt: skip
        return out

    def linear(self, whole: nn.Linear, gate: Gate | None) -> CudaLinear:
        return CudaLinear(whole, gate, self)

    def probe(self) -> Backend:
        return Gathered(1, PAGE_SIZE, self.device, self._dtype)

    def layers(self, layers: nn.ModuleList) -> LayersInTurn:
        return LayersInTurn(layers, self)


def _warps(block: int) -> int:
    return min(16, max(1, block // 512))


def _blocks(outputs: int, inputs: int, gated: bool, normed: bool) -> tuple[int, int]:
    """Outputs and inputs of a block: small enough that there are many, and that one fits registers."""
    across = triton.next_power_of_2(inputs)
    if not normed:
        across = min(across, 4096)
    down, tiles = 16, 2 if gated else 1
    while down > 1 and (
        down * across * tiles > _BLOCK_NUMBERS or (down > 4 and -(-outputs // down) < _PROGRAMS)
    ):
        down //= 2
    return down, across


class CudaLinear(nn.Module):
    """A `Linear`."""

    def __init__(self, whole: nn.Linear, gate: Gate | None, operators: TritonOperators) -> None:
        super().__init__()
        self.weight, self.bias = whole.weight, whole.bias
        rows, self.in_features = whole.weight.shape
        self.out_features = rows // 2 if gate else rows
        self.dtype = whole.weight.dtype
        self.gate, self.gated = gate, gate is not None
        self._operators = operators

    @property
    def weights(self) -> Weights:
        return Weights(self.weight, self.bias, self.gate)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() <= self._operators.few_rows * self.in_features:
            return self._operators.few(x, self.weights)
        y = nn.functional.linear(x, self.weight, self.bias)
        return self.met(y) if self.gated else y

    def halves(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight, self.bias)

    def met(self, halves: torch.Tensor) -> torch.Tensor:
        assert self.gate is not None
        return self._operators.gate(halves, self.gate)


class LayersInTurn(FusedLayers):
    """One after another. What a part adds to the states is added by the kernel that makes the norm for the next part; of few rows by the linear
    layer, and the next one makes the norm."""

    def __init__(self, layers: nn.ModuleList, operators: TritonOperators) -> None:
        super().__init__(layers)
        self._operators = operators
        self._linears = [_linears(layer) for layer in layers]

    def together(self, hidden_states: torch.Tensor, turns: Turns) -> torch.Tensor:
        if hidden_states.shape[1] <= self._operators.few_rows:
            return self._of_few(hidden_states, turns)
        return self._of_many(hidden_states, turns)

    def _of_few(self, hidden_states: torch.Tensor, turns: Turns) -> torch.Tensor:
        few, layers = self._operators.few, cast(list[Any], self.layers)
        for layer, (qkv, out, gate_up, down) in zip(layers, self._linears, strict=True):
            packed = few(hidden_states, qkv, layer.input_layernorm.scale)
            attended = layer.self_attn.attend(packed, turns)
            hidden_states = few(attended, out, residual=hidden_states)
            between = few(hidden_states, gate_up, layer.post_attention_layernorm.scale)
            hidden_states = few(between, down, residual=hidden_states)
        return hidden_states

    def _of_many(self, hidden_states: torch.Tensor, turns: Turns) -> torch.Tensor:
        layers = cast(list[Any], self.layers)
        scales = [layer.input_layernorm.scale for layer in layers]
        normed = self._operators.norm(hidden_states, scales[0])
        for layer, after in zip(layers, [*scales[1:], None], strict=True):
            attention = layer.self_attn
            attended = attention.out(attention.attend(attention.qkv(normed), turns))
            between = layer.post_attention_layernorm.scale
            hidden_states, normed = self._operators.add_norm(attended, hidden_states, between)
            change: torch.Tensor = layer.mlp(normed)
            if after is None:
                break
            hidden_states, normed = self._operators.add_norm(change, hidden_states, after)
        return hidden_states + change


def _linears(layer: Any) -> tuple[Weights, ...]:
    """Of the projections before and after the attention, of gate and up, and of down. Kept apart from their modules, which adapters may
    replace."""
    attention, mlp = layer.self_attn, layer.mlp
    return tuple(one.weights for one in (attention.qkv, attention.out, mlp.gate_up, mlp.down))
