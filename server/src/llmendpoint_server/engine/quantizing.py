"""Quantizes the weights of a loaded model: linear layers then have the weights that whole numbers stand for, and keep the numbers.

Rounded to the nearest, without data to calibrate with. The head, whose errors go straight into the logits, has 8 bits at the least.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn

from llmendpoint_server.engine.formats.groups import Groups
from llmendpoint_server.engine.linear import fits, with_groups
from llmendpoint_server.engine.native import Kernels

Quantization = Literal["int8", "int4"]
GROUP = 32
"""Inputs with one scale, in four bits."""
STEPS = (1.0, 0.95, 0.9, 0.85)
"""Shares of the largest scale that are tried for each group: a smaller one cuts the largest weight, and rounds the others less."""
ROWS = 2**22
"""Weights that are quantized at one time, so that what lies between stays small."""


def quantize(model: Any, kernels: Kernels, quantization: Quantization) -> None:
    """Every plain linear layer that the kernels compute. A layer whose inputs are no whole groups gets 8 bits."""
    head = model.get_output_embeddings()
    for layer in list(model.modules()):
        if type(layer) is nn.Linear and fits(kernels, layer):
            four = quantization == "int4" and layer is not head and layer.in_features % GROUP == 0
            weight = layer.weight.detach()
            groups = in_four_bits(weight) if four else in_eight_bits(weight)
            layer.weight = nn.Parameter(groups.dense().to(weight.dtype), requires_grad=False)
            with_groups(layer, groups)


def in_eight_bits(weight: torch.Tensor) -> Groups:
    """One scale for each output."""
    scale = weight.float().abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny) / 127
    return Groups((weight.float() / scale).round_().to(torch.int8), scale, None, 8)


def in_four_bits(weight: torch.Tensor) -> Groups:
    """One scale for each `GROUP` inputs: of those that are tried the one with the least squared error. The largest weight of a group
    becomes -8, and not 7, so that all sixteen numbers are used."""
    rows = max(1, ROWS // weight.shape[1])
    parts = [_in_four_bits(part.float().view(len(part), -1, GROUP)) for part in torch.split(weight, rows)]
    values, scales = (torch.cat(one) for one in zip(*parts, strict=True))
    return Groups(values.view(weight.shape), scales, None, 4)


def _in_four_bits(groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest = groups.gather(2, groups.abs().argmax(2, keepdim=True))
    best = torch.full(groups.shape[:2], torch.inf)
    values, scales = torch.zeros(groups.shape, dtype=torch.int8), torch.zeros(groups.shape[:2])
    for step in STEPS:
        scale = largest * (-step / 8)
        scale = torch.where(scale == 0, 1.0, scale)
        tried = (groups / scale).round_().clamp_(-8, 7)
        error = (tried * scale).sub_(groups).square_().sum(2)
        better = error < best
        best = torch.where(better, error, best)
        values = torch.where(better[..., None], tried.to(torch.int8), values)
        scales = torch.where(better, scale[..., 0], scales)
    return values, scales
