"""Linear layers with weights in the layout that a kernel reads: oneDNN's, or that of `llmendpoint_native`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import nn

from llmendpoint_server.engine import pages
from llmendpoint_server.engine.machine import cpu_has_bf16
from llmendpoint_server.engine.native import Kernels

Quantization = Literal["int8"]
_PLAIN, _GATED = 0, 1  # `Ending` of kernels/product.h


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
    """`nn.Linear` by our kernels. The weight is kept in as few bytes as hold it: bfloat16 if that is exact, or int8 with one scale for each output
    if `quantization` says so. `gated`: the first half of the outputs goes through silu and is multiplied with the second; then a half must be
    whole panels."""

    def __init__(
        self,
        kernels: Kernels,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        quantization: Quantization | None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self._rows, self.in_features = weight.shape
        self.out_features = self._rows // 2 if gated else self._rows
        self.dtype = weight.dtype
        self._multiply = kernels.functions.linear
        self._is_bf16 = int(weight.dtype is torch.bfloat16)
        self._ending = _GATED if gated else _PLAIN
        weight, bias = weight.detach(), None if bias is None else bias.detach().float()
        if gated:
            weight = _in_turns(weight, kernels.lanes)
            bias = None if bias is None else _in_turns(bias, kernels.lanes)
        stored, self._scale = _stored(weight, quantization)
        self._weight = _panels(stored, kernels.lanes, 1 + self._is_bf16)
        self._bias = bias
        self.packed = (
            self._weight.data_ptr(),
            0 if self._scale is None else self._scale.data_ptr(),
            0 if self._bias is None else self._bias.data_ptr(),
            self._weight.itemsize,
        )
        """`Weights` of kernels/product.h"""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype is not self.dtype or x.shape[-1] != self.in_features:
            raise ValueError(
                f"a linear layer of {self.in_features} {self.dtype} got {tuple(x.shape)} {x.dtype}"
            )
        x = x.contiguous()
        y = x.new_empty(*x.shape[:-1], self.out_features)
        rows = x.numel() // self.in_features
        if not rows:
            return y
        self._multiply(
            self._is_bf16, *self.packed, x.data_ptr(), y.data_ptr(),
            rows, self._rows, self.in_features, self._ending,
        )  # fmt: skip
        return y


def _stored(
    weight: torch.Tensor, quantization: Quantization | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The weight in the type that it is kept in, and the scale of each output."""
    if quantization == "int8":
        scale = weight.float().abs().amax(1).clamp_min(torch.finfo(torch.float32).tiny) / 127
        return (weight.float() / scale[:, None]).round_().to(torch.int8), scale
    short = weight.bfloat16()
    return (short, None) if torch.equal(short.to(weight.dtype), weight) else (weight, None)


def _in_turns(weight: torch.Tensor, lanes: int) -> torch.Tensor:
    """Panels of the first half and of the second in turn: what a gate needs is computed at one time."""
    return weight.view(2, -1, lanes, *weight.shape[1:]).transpose(0, 1).reshape(weight.shape)


def _panels(weight: torch.Tensor, lanes: int, per_unit: int) -> torch.Tensor:
    """`[outputs / lanes, inputs / per_unit, lanes, per_unit]`, the last panel filled up with zeros. int8: `[..., per_unit, lanes]`."""
    outputs, inputs = weight.shape
    if missing := -outputs % lanes:
        weight = torch.cat([weight, weight.new_zeros(missing, inputs)])
    panels = weight.view(-1, lanes, inputs // per_unit, per_unit)
    in_turn = weight.dtype is torch.int8
    return pages.moved(panels.permute((0, 2, 3, 1) if in_turn else (0, 2, 1, 3)))


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
    return out


def fits(kernels: Kernels | None, linear: nn.Linear) -> bool:
    """Whether our kernels compute this layer."""
    return kernels is not None and linear.in_features % kernels.inputs == 0


def packable(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether oneDNN has packed linears for this: fp32 on any processor, bf16 on those that multiply it."""
    if device.type != "cpu" or not torch._C._has_mkldnn:
        return False
    return dtype is torch.float32 or (dtype is torch.bfloat16 and cpu_has_bf16())


def faster(linear: nn.Linear, kernels: Kernels | None, quantization: Quantization | None) -> nn.Module:
    """The fastest module that computes the same as a plain linear layer on this device."""
    if kernels is not None and fits(kernels, linear):
        return NativeLinear(kernels, linear.weight, linear.bias, quantization)
    if packable(linear.weight.device, linear.weight.dtype):
        return PackedLinear(linear.weight, linear.bias)
    return linear
