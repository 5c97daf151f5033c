"""Makes a loaded model faster without changing what it computes.

Norms, feed-forwards and attentions become few kernel calls where engine/fusing.py can show that they compute the same. Projections of one
input (q/k/v, gate/up) become one matmul. And on CPU the weights are packed once into the layout that a kernel reads; torch's own linear would do that at
every call (measured on 2 AVX2 cores, 110M parameters in fp32: 44 -> 21 ms per step at 8 rows, 51 -> 31 at 16). Modules
that are not recognised stay unchanged. The gate compares the result with the model's own forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from llmendpoint_server.engine.fusing import (
    Fusing,
    fused_attention,
    fused_layers,
    fused_mlp,
    fused_norm,
)
from llmendpoint_server.engine.linear import PackedLinear, joined, packable, plain_linears
from llmendpoint_server.engine.operators import Operators

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

    @property
    def lead(self) -> LeadProjection:
        return self._lead[0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        (lead,) = self._lead
        if x is not lead.input:
            raise RuntimeError("projections that were joined got different inputs")
        part = lead.parts[self.index]
        if self.index == len(lead.parts) - 1:
            lead.input, lead.parts = None, ()
        return part


def join_projections(parent: nn.Module) -> None:
    """Join q/k/v and gate/up in each module that has them as plain linears. One after another, and each frees what it replaces."""
    for names in SIBLINGS:
        _join(parent, names)
    for child in parent.children():
        join_projections(child)


def _join(parent: nn.Module, names: tuple[str, ...]) -> None:
    linears = plain_linears(parent, names)
    whole = joined(linears) if linears is not None else None
    if linears is None or whole is None:
        return
    lead = LeadProjection(whole, [x.out_features for x in linears])
    setattr(parent, names[0], lead)
    for index, name in enumerate(names[1:], start=1):
        setattr(parent, name, FollowingProjection(lead, index))


def pack_linears(parent: nn.Module, operators: Operators | None) -> None:
    """Replace every plain linear. The unpacked weights are freed one by one, unless an embedding shares them."""
    for name, child in list(parent.named_children()):
        if type(child) is nn.Linear:
            setattr(parent, name, _faster(child, operators))
        else:
            pack_linears(child, operators)


def _faster(linear: nn.Linear, operators: Operators | None) -> nn.Module:
    """The fastest module that computes the same as a plain linear layer on this device."""
    found = None if operators is None else operators.linear(linear, None)
    if found is None and packable(linear.weight.device, linear.weight.dtype):
        return PackedLinear(linear.weight, linear.bias)
    return found or linear


def fuse(model: nn.Module, operators: Operators) -> None:
    """Replace norms, feed-forwards and attentions by fused ones where they compute the same, then runs of layers."""
    fusing = Fusing.by(operators)
    with torch.inference_mode():
        _fuse_parts(model, fusing)
        for parent in list(model.modules()):
            for name, child in list(parent.named_children()):
                fused = _attempt(fused_layers, child, model, fusing) if type(child) is nn.ModuleList else None
                if fused is not None:
                    setattr(parent, name, nn.ModuleList([fused]))


def _fuse_parts(parent: nn.Module, fusing: Fusing) -> None:
    """One after another, and each frees what it replaces: so the weights are in memory once."""
    for name, child in list(parent.named_children()):
        fused = (
            _attempt(fused_attention, child, fusing)
            or _attempt(fused_mlp, child, fusing)
            or _attempt(fused_norm, child, fusing)
        )
        if fused is not None:
            setattr(parent, name, fused)
        else:
            _fuse_parts(child, fusing)


def _attempt(make: Callable[..., nn.Module | None], *args: Any) -> nn.Module | None:
    try:
        return make(*args)
    except Exception:  # any: the module wants something else than what it looks like, and is kept
        return None


def operate(model: Any, operators: Operators | None) -> None:
    """Apply all changes that pay on this device."""
    if operators is not None:
        fuse(model, operators)
    join_projections(model)
    pack_linears(model, operators)
