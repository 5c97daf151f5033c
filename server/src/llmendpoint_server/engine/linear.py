"""Linear layers with weights in the layout that a kernel reads: oneDNN's, or that of `llmendpoint_native`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import torch
from torch import nn

from llmendpoint_server.engine import pages
from llmendpoint_server.engine.formats.groups import Groups
from llmendpoint_server.engine.machine import cpu_has_bf16
from llmendpoint_server.engine.native import Kernels

_PLAIN, _GATED = 0, 1  # `Ending` of kernels/product.h
_MIDDLE = 8
"""Of four bits: the kernels count them from 0 on."""


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


class NativeLinear(nn.Module):
    """`nn.Linear` by our kernels. The weight is kept in as few bytes as hold it: bfloat16 if that is exact; or the whole numbers of `groups`, if the
    kernels read such. `gated`: the first half of the outputs goes through silu and is multiplied with the second; then a half must be
    whole panels."""

    def __init__(
        self,
        kernels: Kernels,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        groups: Groups | None = None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self._rows, self.in_features = weight.shape
        self.out_features = self._rows // 2 if gated else self._rows
        self.dtype = weight.dtype
        self._multiply = kernels.functions.linear
        self._is_bf16 = int(weight.dtype is torch.bfloat16)
        self._lanes = kernels.lanes
        self.gated = gated
        kept = Kept.of_groups(groups) if reads(groups) else Kept.of_weight(weight.detach())
        bias = None if bias is None else bias.detach().float()
        if gated:
            kept = kept.in_turns(kernels.lanes)
            bias = None if bias is None else _in_turns(bias, kernels.lanes)
        self._weight = kept.panels(kernels.lanes, 1 + self._is_bf16)
        self._scale, self._zero = (kept.panels_of(one, kernels.lanes) for one in (kept.scale, kept.zero))
        self._bias = bias
        self.packed = (
            *(
                0 if one is None else one.data_ptr()
                for one in (self._weight, self._scale, self._bias, self._zero)
            ),
            kept.bits,
            kept.group,
        )
        """`Weights` of kernels/product.h"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._computed(x, self.out_features, _GATED if self.gated else _PLAIN)

    def halves(self, x: torch.Tensor) -> torch.Tensor:
        """Of a gated layer: both halves of the outputs as they are before they meet, the first one first."""
        y = self._computed(x, self._rows, _PLAIN)
        return y.view(-1, self._rows // self._lanes // 2, 2, self._lanes).transpose(1, 2).reshape(y.shape)

    def met(self, halves: torch.Tensor) -> torch.Tensor:
        """What the gate makes of them."""
        gate, up = halves.chunk(2, -1)
        return nn.functional.silu(gate) * up

    def _computed(self, x: torch.Tensor, outputs: int, ending: int) -> torch.Tensor:
        if x.dtype is not self.dtype or x.shape[-1] != self.in_features:
            raise ValueError(
                f"a linear layer of {self.in_features} {self.dtype} got {tuple(x.shape)} {x.dtype}"
            )
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], outputs)
        rows = x.numel() // self.in_features
        if not rows:
            return y
        self._multiply(
            self._is_bf16, *self.packed, x.data_ptr(), y.data_ptr(),
            rows, self._rows, self.in_features, ending,
        )  # fmt: skip
        return y


@dataclass(frozen=True, slots=True)
class Kept:
    """A weight `[outputs, inputs]` in the type that it is kept in. `scale`, `zero`: of each output, or of each group of four bits
    `[outputs, groups]`."""

    weight: torch.Tensor
    bits: int
    scale: torch.Tensor | None = None
    zero: torch.Tensor | None = None
    group: int = 0
    """inputs of a group"""

    @staticmethod
    def of_weight(weight: torch.Tensor) -> Kept:
        short = weight.bfloat16()
        kept = short if torch.equal(short.to(weight.dtype), weight) else weight
        return Kept(kept, 8 * kept.itemsize)

    @staticmethod
    def of_groups(groups: Groups) -> Kept:
        if groups.bits == 8:
            return Kept(groups.values, 8, groups.scale.flatten())
        zero = None if groups.zero is None else groups.zero + _MIDDLE
        return Kept(groups.values, 4, groups.scale, zero, groups.size)

    def in_turns(self, lanes: int) -> Kept:
        scale, zero = (None if one is None else _in_turns(one, lanes) for one in (self.scale, self.zero))
        return Kept(_in_turns(self.weight, lanes), self.bits, scale, zero, self.group)

    def panels(self, lanes: int, per_unit: int) -> torch.Tensor:
        """Whole numbers: `[outputs / lanes, inputs / per_unit, per_unit, lanes]`, or two inputs a byte `[outputs / lanes, inputs / 2, lanes]`. Others:
        `[outputs / lanes, inputs / per_unit, lanes, per_unit]`. The last panel is filled up with zeros."""
        if self.bits == 4:
            pairs = (
                (_whole(self.weight, lanes) + _MIDDLE)
                .to(torch.uint8)
                .view(-1, lanes, self.weight.shape[1] // 2, 2)
            )
            return pages.moved((pairs[..., 0] | pairs[..., 1] << 4).transpose(1, 2))
        weight = _whole(self.weight, lanes)
        panels = weight.view(-1, lanes, weight.shape[1] // per_unit, per_unit)
        return pages.moved(panels.permute((0, 2, 3, 1) if self.bits == 8 else (0, 2, 1, 3)))

    def panels_of(self, scale: torch.Tensor | None, lanes: int) -> torch.Tensor | None:
        """`scale` or `zero` as the kernels read it: of groups `[outputs / lanes, groups, lanes]`."""
        if scale is None or self.bits != 4:
            return scale
        return _whole(scale, lanes).view(-1, lanes, scale.shape[1]).transpose(1, 2).contiguous()


def reads(groups: Groups | None) -> TypeGuard[Groups]:
    """Whether the kernels read a weight in these groups: four bits, or eight with one scale for each output."""
    if groups is None:
        return False
    if groups.bits == 8:
        return groups.scale.shape[1] == 1 and groups.zero is None
    return groups.bits == 4 and groups.size % 2 == 0


def _whole(rows: torch.Tensor, lanes: int) -> torch.Tensor:
    """Filled up with zeros to whole panels."""
    missing = -len(rows) % lanes
    return torch.cat([rows, rows.new_zeros(missing, *rows.shape[1:])]) if missing else rows


def _in_turns(weight: torch.Tensor, lanes: int) -> torch.Tensor:
    """Panels of the first half and of the second in turn: what a gate needs is computed at one time."""
    return weight.view(2, -1, lanes, *weight.shape[1:]).transpose(0, 1).reshape(weight.shape)


def plain_linears(parent: Any, names: Sequence[str]) -> list[nn.Linear] | None:
    """The children of these names, if all of them are plain linear layers."""
    found = [getattr(parent, name, None) for name in names]
    return found if all(type(one) is nn.Linear for one in found) else None  # type: ignore[return-value]


def joined(linears: Sequence[nn.Linear]) -> nn.Linear | None:
    """Layers of one input as one layer; None if they differ in more than their outputs."""
    if len({(x.in_features, x.bias is None, x.weight.dtype, x.weight.device) for x in linears}) > 1:
        return None
    out = nn.Linear(1, 1, bias=linears[0].bias is not None, device="meta")
    out.in_features, out.out_features = linears[0].in_features, sum(x.out_features for x in linears)
    out.weight = nn.Parameter(torch.cat([x.weight.detach() for x in linears]), requires_grad=False)
    if out.bias is not None:
        out.bias = nn.Parameter(torch.cat([x.bias.detach() for x in linears]), requires_grad=False)
    return with_groups(out, joined_groups([groups_of(x) for x in linears]))


def with_groups(linear: nn.Linear, groups: Groups | None) -> nn.Linear:
    """The layer, which keeps the groups that its weight is made of."""
    linear.quantized = groups  # type: ignore[assignment]  # no tensor and no module
    return linear


def groups_of(linear: nn.Linear) -> Groups | None:
    return cast("Groups | None", getattr(linear, "quantized", None))


def joined_groups(parts: Sequence[Groups | None]) -> Groups | None:
    """The groups of several layers as those of one; None if they differ in more than their outputs."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or len({(part.bits, part.scale.shape[1]) for part in found}) > 1:
        return None
    zeros = [torch.zeros_like(part.scale) if part.zero is None else part.zero for part in found]
    some = any(part.zero is not None for part in found)
    return Groups(
        torch.cat([part.values for part in found]),
        torch.cat([part.scale for part in found]),
        torch.cat(zeros) if some else None,
        found[0].bits,
    )


def fits(kernels: Kernels | None, linear: nn.Linear) -> bool:
    """Whether our kernels compute this layer."""
    return kernels is not None and linear.in_features % kernels.inputs == 0


def packable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN has packed linears for this: fp32 on any processor, bf16 on those that multiply it."""
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and cpu_has_bf16())
