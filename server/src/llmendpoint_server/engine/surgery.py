"""Makes a loaded model faster without changing what it computes.

Norms, feed-forwards and attentions become few kernel calls where engine/fused.py can show that they compute the same. Projections of one
input (q/k/v, gate/up) become one matmul. And on CPU the weights are packed once into the layout that a kernel reads; torch's own linear would do that at
every call (measured on 2 AVX2 cores, 110M parameters in fp32: 44 -> 21 ms per step at 8 rows, 51 -> 31 at 16). Modules
that are not recognised stay unchanged. The gate compares the result with the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from llmendpoint_server.core.batch import Batch, Scheduled
from llmendpoint_server.core.request import Request, SamplingParams
from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.attention.in_place import InPlace
from llmendpoint_server.engine.fused import Fusing, fused_attention, fused_mlp, fused_norm
from llmendpoint_server.engine.linear import Quantization, faster
from llmendpoint_server.engine.native import Kernels

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class LeadProjection(nn.Module):
    """Computes its siblings' outputs together with its own; they fetch theirs right after it."""

    def __init__(self, linear: nn.Module, sizes: list[int]) -> None:
        super().__init__()
        self.linear = linear
        self.sizes = sizes
        self.input: torch.Tensor | None = None
        self.parts: tuple[torch.Tensor, ...] = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.input = x
        self.parts = self.linear(x).split(self.sizes, -1)
        return self.parts[0]


class FollowingProjection(nn.Module):
    """Returns the `index`-th part of what the lead computed for the same input."""

    def __init__(self, lead: LeadProjection, index: int) -> None:
        super().__init__()
        self._lead = (lead,)  # a tuple, so that the lead is not registered as a child twice
        self.index = index

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (lead,) = self._lead
        if x is not lead.input:
            raise RuntimeError("projections that were joined got different inputs")
        part = lead.parts[self.index]
        if self.index == len(lead.parts) - 1:
            lead.input, lead.parts = None, ()
        return part


def _joinable(parent: nn.Module, names: tuple[str, ...]) -> list[nn.Linear] | None:
    children = [getattr(parent, name, None) for name in names]
    linears: list[Any] = [child for child in children if type(child) is nn.Linear]
    if len(linears) < len(names):
        return None
    kinds = {(x.in_features, x.bias is None, x.weight.dtype, x.weight.device) for x in linears}
    return linears if len(kinds) == 1 else None


def join_projections(model: nn.Module) -> int:
    """Join q/k/v and gate/up in each module that has them as plain linears; returns how many sets."""
    joined = 0
    for parent in list(model.modules()):
        for names in SIBLINGS:
            linears = _joinable(parent, names)
            if linears is None:
                continue
            lead = LeadProjection(_concatenate(linears), [x.out_features for x in linears])
            setattr(parent, names[0], lead)
            for index, name in enumerate(names[1:], start=1):
                setattr(parent, name, FollowingProjection(lead, index))
            joined += 1
    return joined


def _concatenate(linears: list[nn.Linear]) -> nn.Linear:
    out = nn.Linear(1, 1, bias=linears[0].bias is not None, device="meta")
    out.in_features, out.out_features = linears[0].in_features, sum(x.out_features for x in linears)
    out.weight = nn.Parameter(torch.cat([x.weight.detach() for x in linears]), requires_grad=False)
    if out.bias is not None:
        out.bias = nn.Parameter(torch.cat([x.bias.detach() for x in linears]), requires_grad=False)
    return out


def pack_linears(model: nn.Module, kernels: Kernels | None, quantization: Quantization | None) -> None:
    """Replace every plain linear. The unpacked weights are freed, unless an embedding shares them."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, faster(child, kernels, quantization))


def _step_of(backend: InPlace) -> Callable[[int], Any]:
    def make(tokens: int) -> Any:
        ids = [0] * tokens
        sequence = Sequence(Request("probe", tuple(ids), SamplingParams(1)), 0, ids, [], table=[0])
        return backend.prepare(Batch((Scheduled(sequence, 0, tokens),), 0.0))

    return make


def fuse(model: nn.Module, kernels: Kernels, dtype: torch.dtype, quantization: Quantization | None) -> int:
    """Replace norms, feed-forwards and attentions by fused ones where they compute the same; returns how many."""
    fusing, backend, count = Fusing(kernels, quantization), InPlace(kernels, 1, dtype), 0
    step = _step_of(backend)
    with torch.inference_mode():
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                try:
                    fused = (
                        fused_attention(child, fusing, backend, step)
                        or fused_mlp(child, fusing)
                        or fused_norm(child, fusing)
                    )
                except Exception:  # any: the module wants something else than what it looks like, and is kept
                    fused = None
                if fused is not None:
                    setattr(parent, name, fused)
                    count += 1
    return count


def operate(
    model: Any,
    device: torch.device,
    dtype: torch.dtype,
    kernels: Kernels | None = None,
    quantization: Quantization | None = None,
) -> None:
    """Apply all changes that pay on this device."""
    if kernels is not None:
        fuse(model, kernels, dtype, quantization)
    join_projections(model)
    pack_linears(model, kernels, quantization)
