"""Modules of a decoder in few kernel calls: norm, gated feed-forward, attention, and a whole run of layers in one call.

engine/fusing.py makes them where they compute the same as a family's own modules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from llmendpoint_server.engine.attention.base import Rules
from llmendpoint_server.engine.attention.in_place import LayerTable, pack_layer
from llmendpoint_server.engine.linear import NativeLinear
from llmendpoint_server.engine.native import Kernels


class FusedNorm(nn.Module):
    """Root-mean-square norm. `weight` in float32."""

    def __init__(self, kernels: Kernels, weight: torch.Tensor, eps: float) -> None:
        super().__init__()
        self.weight = weight.contiguous()
        self.eps = eps
        self._norm = kernels.functions.norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out, dim = torch.empty_like(x), x.shape[-1]
        is_bf16 = int(x.dtype is torch.bfloat16)
        self._norm(
            is_bf16, x.data_ptr(), self.weight.data_ptr(), self.eps, out.data_ptr(), x.numel() // dim, dim
        )
        return out


class FusedMlp(nn.Module):
    """`down(silu(gate(x)) * up(x))`. `gate_up` is gated."""

    def __init__(self, gate_up: NativeLinear, down: NativeLinear) -> None:
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
        kernels: Kernels,
        qkv: NativeLinear,
        out: NativeLinear,
        dim: int,
        norms: tuple[FusedNorm, FusedNorm] | None,
        layer: int,
        attending: Any,
        rules: Rules,
    ) -> None:
        super().__init__()
        self.qkv, self.out = qkv, out
        self.heads = out.in_features // dim
        self.kv_heads = (qkv.out_features // dim - self.heads) // 2
        self.dim = dim
        self.norms = norms
        self.layer_idx = layer
        self.attending = attending
        self.rules = rules
        self._rotate = kernels.functions.rotate

    def forward(
        self, hidden_states: torch.Tensor, position_embeddings: tuple[torch.Tensor, torch.Tensor], **_: Any
    ) -> tuple[torch.Tensor, None]:
        backend, step = self.attending.work
        qkv = self.qkv(hidden_states)
        cos, sin = (x.to(qkv.dtype).contiguous() for x in position_embeddings)
        if self.norms is None:
            self._turn(qkv, cos, sin, 0, self.heads + self.kv_heads, None)
        else:
            self._turn(qkv, cos, sin, 0, self.heads, self.norms[0])
            self._turn(qkv, cos, sin, self.heads, self.kv_heads, self.norms[1])
        heads = qkv.view(1, qkv.shape[1], -1, self.dim).transpose(1, 2)
        query, key, value = heads.split([self.heads, self.kv_heads, self.kv_heads], 1)
        attended = backend.attend(step, self.layer_idx, query, key, value, self.rules)
        return self.out(attended.view(1, qkv.shape[1], -1)), None

    def _turn(
        self,
        qkv: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        first: int,
        heads: int,
        norm: FusedNorm | None,
    ) -> None:
        """Norm and rotary embedding of some heads, in place."""
        self._rotate(
            int(qkv.dtype is torch.bfloat16),
            qkv.data_ptr() + first * self.dim * qkv.itemsize, cos.data_ptr(), sin.data_ptr(),
            0 if norm is None else norm.weight.data_ptr(), 0.0 if norm is None else norm.eps,
            qkv.shape[1], heads, qkv.shape[2], self.dim, cos.shape[-1],
        )  # fmt: skip


class FusedLayers(nn.Module):
    """All decoder layers in one kernel call. `layers`: of `input_layernorm`, `self_attn`, `post_attention_layernorm` and `mlp`, all fused and
    of the same shapes. They keep the weights, and are called only while `apart` says so."""

    def __init__(self, layers: nn.ModuleList) -> None:
        super().__init__()
        self.layers = layers
        self.apart: Callable[[], bool] = bool
        """whether something is added inside of the layers now"""
        first: Any = layers[0]
        self.attending = first.self_attn.attending
        attentions: list[Any] = [layer.self_attn for layer in layers]
        self.table = LayerTable(
            packed=b"".join(_packed(layer) for layer in layers),
            indices=tuple(one.layer_idx for one in attentions),
            windows=tuple(one.rules.sliding_window for one in attentions),
            hidden=first.mlp.down.out_features,
            heads=first.self_attn.heads,
            kv_heads=first.self_attn.kv_heads,
            dim=first.self_attn.dim,
            width=first.mlp.down.in_features,
        )

    def forward(
        self, hidden_states: torch.Tensor, position_embeddings: tuple[torch.Tensor, torch.Tensor], **more: Any
    ) -> torch.Tensor:
        if self.apart():
            for layer in self.layers:
                hidden_states = layer(hidden_states, position_embeddings=position_embeddings, **more)
            return hidden_states
        backend, step = self.attending.work
        hidden_states = hidden_states.clone(memory_format=torch.contiguous_format)
        cos, sin = (x.to(hidden_states.dtype).contiguous() for x in position_embeddings)
        backend.compute_layers(step, self.table, hidden_states, cos, sin)
        return hidden_states


def _packed(layer: Any) -> bytes:
    attention, mlp = layer.self_attn, layer.mlp
    before, after = layer.input_layernorm, layer.post_attention_layernorm
    query, key = attention.norms or (None, None)
    return pack_layer(
        norms=[0 if norm is None else norm.weight.data_ptr() for norm in (before, query, key, after)],
        eps=[0.0 if norm is None else norm.eps for norm in (before, query, key, after)],
        linears=[one.packed for one in (attention.qkv, attention.out, mlp.gate_up, mlp.down)],
        rules=attention.rules,
    )
