"""The operators of fused modules on a CPU: the kernels of `llmendpoint_native`."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from llmendpoint_server.engine.attention.in_place import InPlace, LayerTable, pack_layer
from llmendpoint_server.engine.fused import FusedLayers
from llmendpoint_server.engine.linear import NativeLinear, fits, groups_of
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.operators import Gate, Heads, Operators, Scale, Turns


class NativeOperators(Operators):
    """For states in `dtype`."""

    device = torch.device("cpu")
    gates = ("silu",)

    def __init__(self, kernels: Kernels, dtype: torch.dtype) -> None:
        self._kernels, self._dtype = kernels, dtype
        self._norm, self._rotate = kernels.functions.norm, kernels.functions.rotate
        self.multiple = kernels.lanes

    def norm(self, x: torch.Tensor, scale: Scale) -> torch.Tensor:
        x = x.contiguous()
        out, dim = torch.empty_like(x), x.shape[-1]
        is_bf16 = int(x.dtype is torch.bfloat16)
        self._norm(
            is_bf16, x.data_ptr(), scale.weight.data_ptr(), scale.eps, out.data_ptr(), x.numel() // dim, dim
        )
        return out

    def rotate(
        self, qkv: torch.Tensor, turns: Turns, heads: Heads, norms: tuple[Scale, Scale] | None
    ) -> None:
        if norms is None:
            self._turn(qkv, turns, (0, heads.queries + heads.keys), heads.dim, None)
        else:
            self._turn(qkv, turns, (0, heads.queries), heads.dim, norms[0])
            self._turn(qkv, turns, (heads.queries, heads.keys), heads.dim, norms[1])

    def _turn(
        self, qkv: torch.Tensor, turns: Turns, part: tuple[int, int], dim: int, norm: Scale | None
    ) -> None:
        """`part`: the first head, and how many."""
        (first, heads), (cos, sin) = part, turns
        self._rotate(
            int(qkv.dtype is torch.bfloat16),
            qkv.data_ptr() + first * dim * qkv.itemsize, cos.data_ptr(), sin.data_ptr(),
            0 if norm is None else norm.weight.data_ptr(), 0.0 if norm is None else norm.eps,
            qkv.shape[1], heads, qkv.shape[2], dim, cos.shape[-1],
        )  # fmt: skip

    def linear(self, whole: nn.Linear, gate: Gate | None) -> NativeLinear | None:
        if not fits(self._kernels, whole):
            return None
        return NativeLinear(self._kernels, whole.weight, whole.bias, groups_of(whole), gate is not None)

    def probe(self) -> InPlace:
        return InPlace(self._kernels, 1, self._dtype)

    def layers(self, layers: nn.ModuleList) -> FusedLayers:
        return LayersInOneCall(layers)


class LayersInOneCall(FusedLayers):
    """All of them are one kernel call."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__(layers)
        first: Any = layers[0]
        attentions: list[Any] = [layer.self_attn for layer in layers]
        self.table = LayerTable(
            packed=b"".join(_packed(layer) for layer in layers),
            indices=tuple(one.layer_idx for one in attentions),
            windows=tuple(one.rules.sliding_window for one in attentions),
            hidden=first.mlp.down.out_features,
            heads=first.self_attn.heads.queries,
            kv_heads=first.self_attn.heads.keys,
            dim=first.self_attn.heads.dim,
            width=first.mlp.down.in_features,
        )

    def together(self, hidden_states: torch.Tensor, turns: Turns) -> torch.Tensor:
        backend, step = self.attending.work
        hidden_states = hidden_states.clone(memory_format=torch.contiguous_format)
        backend.compute_layers(step, self.table, hidden_states, *turns)
        return hidden_states


def _packed(layer: Any) -> bytes:
    attention, mlp = layer.self_attn, layer.mlp
    before, after = layer.input_layernorm.scale, layer.post_attention_layernorm.scale
    query, key = attention.norms or (None, None)
    return pack_layer(
        norms=[0 if norm is None else norm.weight.data_ptr() for norm in (before, query, key, after)],
        eps=[0.0 if norm is None else norm.eps for norm in (before, query, key, after)],
        linears=[one.packed for one in (attention.qkv, attention.out, mlp.gate_up, mlp.down)],
        rules=attention.rules,
    )
