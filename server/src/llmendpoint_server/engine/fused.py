"""Modules of a decoder layer in few kernel calls: norm, gated feed-forward and attention.

A module is replaced by what it computes, not by its class. `fused_*` build the replacement from what a module holds, run both on random numbers, and return None
if the results differ. So a family that adds a step of its own keeps its module.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.base import Backend, Rules
from llmendpoint_server.engine.attention.watched import Watched
from llmendpoint_server.engine.gate import difference
from llmendpoint_server.engine.linear import NativeLinear, Quantization, fits, joined, plain_linears
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.step import Step

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Largest root-mean-square difference of a module's output, as a share of its spread. bf16 differs by some 0.5 % because
the kernels round once where torch rounds after each operator."""
INT8_TOLERANCE = 5e-2
_TOKENS = 5
_KNOWN = frozenset(
    {"self", "hidden_states", "position_embeddings", "attention_mask", "past_key_values", "kwargs"}
)
"""What an attention may be called with. Another name may change what it computes."""


@dataclass(frozen=True, slots=True)
class Fusing:
    """What replacements are made with."""

    kernels: Kernels
    quantization: Quantization | None

    def linear(self, *parts: nn.Linear) -> NativeLinear | None:
        """Layers of one input as one layer; None if the kernels do not compute it."""
        whole = joined(parts)
        if whole is None or not fits(self.kernels, whole):
            return None
        return NativeLinear(self.kernels, whole.weight, whole.bias, self.quantization)

    def agree(self, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        most = INT8_TOLERANCE if self.quantization else TOLERANCE[theirs.dtype]
        return difference(ours, theirs) <= most


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
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, kernels: Kernels, gate_up: NativeLinear, down: NativeLinear) -> None:
        super().__init__()
        self.gate_up = gate_up
        self.down = down
        self._activate = kernels.functions.silu_and_multiply

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = self.gate_up(x)
        dim = both.shape[-1] // 2
        hidden = both.new_empty(*both.shape[:-1], dim)
        is_bf16 = int(both.dtype is torch.bfloat16)
        self._activate(is_bf16, both.data_ptr(), hidden.data_ptr(), both.numel() // (2 * dim), dim)
        out: torch.Tensor = self.down(hidden)
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


def _random(*shape: int, like: torch.Tensor) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(like.dtype)


def fused_norm(module: Any, fusing: Fusing) -> FusedNorm | None:
    weight = getattr(module, "weight", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, torch.Tensor) or weight.dim() != 1 or not isinstance(eps, float):
        return None
    if weight.dtype not in TOLERANCE or getattr(module, "bias", None) is not None:
        return None
    # The mean is not 0: otherwise a norm that subtracts it would differ by 1 / sqrt(dim) only.
    x = _random(_TOKENS, len(weight), like=weight) * 2 + 1
    expected = module(x)
    if expected.shape != x.shape or expected.dtype != x.dtype:
        return None
    scales = weight.float(), 1 + weight.float()  # Gemma's families keep the difference from 1
    norms = [FusedNorm(fusing.kernels, scale, eps) for scale in scales]
    norm = min(norms, key=lambda one: difference(one(x), expected))
    return norm if difference(norm(x), expected) <= TOLERANCE[x.dtype] else None


def fused_mlp(module: Any, fusing: Fusing) -> FusedMlp | None:
    linears = plain_linears(module, ("gate_proj", "up_proj", "down_proj"))
    if linears is None:
        return None
    gate_up, down = fusing.linear(*linears[:2]), fusing.linear(linears[2])
    if gate_up is None or down is None or linears[2].in_features % fusing.kernels.lanes:
        return None
    mlp = FusedMlp(fusing.kernels, gate_up, down)
    x = _random(1, _TOKENS, linears[0].in_features, like=linears[0].weight)
    # The large input shows a limit on what lies between the layers.
    return mlp if all(fusing.agree(mlp(y), module(y)) for y in (x, 32 * x)) else None


def _step(backend: Backend) -> Step:
    """One sequence from position 0 on, in the first page."""
    ids = [0] * _TOKENS
    sequence = Sequence(Request("probe", tuple(ids), SamplingParams(1)), 0, ids, [], table=[0])
    return backend.prepare(Batch((Scheduled(sequence, 0, _TOKENS),), 0.0))


def fused_attention(module: Any, fusing: Fusing, backend: Backend) -> FusedAttention | None:
    """`backend`: with a page that may be written."""
    linears = plain_linears(module, ("q_proj", "k_proj", "v_proj", "o_proj"))
    dim = getattr(module, "head_dim", None)
    if linears is None or not isinstance(dim, int) or dim % fusing.kernels.lanes:
        return None
    if not set(inspect.signature(module.forward).parameters) <= _KNOWN:
        return None
    if getattr(getattr(module, "config", None), "clip_qkv", None) is not None:
        return None  # random inputs may not reach the limit
    qkv, out = fusing.linear(*linears[:3]), fusing.linear(linears[3])
    if qkv is None or out is None:
        return None
    norms: tuple[FusedNorm, FusedNorm] | None = None
    if hasattr(module, "q_norm") or hasattr(module, "k_norm"):
        query, key = (fused_norm(getattr(module, name, None), fusing) for name in ("q_norm", "k_norm"))
        if query is None or key is None or len(query.weight) != dim or len(key.weight) != dim:
            return None
        norms = query, key
    angles = torch.rand(1, _TOKENS, dim // 2, generator=torch.Generator().manual_seed(1)).repeat(1, 1, 2) * 6
    x = _random(1, _TOKENS, qkv.in_features, like=linears[0].weight)
    states: dict[str, Any] = {
        "hidden_states": x,
        "position_embeddings": (angles.cos().to(x.dtype), angles.sin().to(x.dtype)),
        "attention_mask": None,
    }
    watched = Watched(backend)
    module.attending.work = watched, _step(backend)
    try:
        expected, _ = module(**states)
        rules = watched.rules.get(module.layer_idx)
        if rules is None:
            return None
        fused = FusedAttention(
            fusing.kernels, qkv, out, dim, norms, module.layer_idx, module.attending, rules
        )
        return fused if fusing.agree(fused(**states)[0], expected) else None
    finally:
        module.attending.work = None
