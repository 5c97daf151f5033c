"""Makes a loaded model's linear layers faster without changing what they compute.

Two changes, both by what a module holds, not by its class. Projections of one input (q/k/v, gate/up) become one matmul.
And on CPU the weights are packed once into the layout that oneDNN's kernels read; torch's own linear would do that at
every call (measured on 2 AVX2 cores, 110M parameters in fp32: 44 -> 21 ms per step at 8 rows, 51 -> 31 at 16). Modules
that are not recognised stay unchanged. The gate compares the result with the model's own forward.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn

from llmendpoint_server.engine.machine import cpu_has_bf16

SIBLINGS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class PackedLinear(nn.Module):
    """`nn.Linear` on CPU with its weight in oneDNN's blocked layout."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
        self.bias = None if bias is None else bias.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(
            torch.Tensor,
            torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], ""),
        )


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


def packable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN has packed linears for this: fp32 on any processor, bf16 on those that multiply it."""
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and cpu_has_bf16())


def pack_linears(model: nn.Module) -> int:
    """Pack every plain linear; returns how many. The unpacked weights are freed, unless an embedding shares them."""
    packed = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PackedLinear(child.weight, child.bias))
                packed += 1
    return packed


def operate(model: Any, device: torch.device, dtype: torch.dtype) -> None:
    """Apply all changes that pay on this device."""
    join_projections(model)
    if packable(device, dtype):
        pack_linears(model)
