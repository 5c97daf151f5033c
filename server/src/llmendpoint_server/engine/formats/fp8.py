"""Weights as 8-bit floats (e4m3) with one scale for all of them, for each output, or for each block of outputs and inputs.

DeepSeek's and Qwen's checkpoints call the scale of a block `weight_scale_inv`, though weights are multiplied with it. Others call it
`weight_scale`. What else they hold is for activations, which keep their precision here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from llmendpoint_server.engine.formats.groups import FLOATS, BadWeights, Groups, UnsupportedWeights
from llmendpoint_server.engine.formats.layer import Stored

E4M3 = torch.float8_e4m3fn
SCALES = FLOATS | {torch.float8_e8m0fnu}


class Fp8:
    title = "FP8"
    parts = frozenset(
        {"weight_scale", "weight_scale_inv", "input_scale", "input_scale_ub", "activation_scale"}
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._block = block_of(options.get("weight_block_size"))

    def decode(self, layer: Stored) -> Groups | torch.Tensor:
        name = "weight_scale_inv" if "weight_scale_inv" in layer.tensors else "weight_scale"
        return scaled(layer, layer.get(name), layer.full(name), self._block)


def block_of(size: Any) -> tuple[int, int] | None:
    """Outputs and inputs of a block; None if there are none. Raises UnsupportedWeights."""
    if size is None:
        return None
    if isinstance(size, list | tuple) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size):
        return size[0], size[1]
    raise UnsupportedWeights(f"are FP8 in blocks of {size!r}; two whole numbers are read, such as [128, 128]")


def scaled(layer: Stored, scale: torch.Tensor, name: str, block: tuple[int, int] | None) -> torch.Tensor:
    """The weight in float32. Raises BadWeights."""
    weight = layer.get("weight")
    if weight.dtype is not E4M3 or weight.dim() != 2:
        kind = str(weight.dtype).removeprefix("torch.")
        raise BadWeights(
            f"{layer.full('weight')} is {kind} {list(weight.shape)}, and must be a matrix in float8_e4m3fn"
        )
    if scale.dtype not in SCALES:
        raise BadWeights(f"{name} is {str(scale.dtype).removeprefix('torch.')}, and must be a float")
    outputs, inputs = weight.shape
    scale = scale.float()
    if scale.numel() == 1:
        return weight.float() * scale.view(())
    if scale.numel() == outputs and scale.shape in ((outputs,), (outputs, 1)):
        return weight.float() * scale.view(-1, 1)
    if block is None:
        raise BadWeights(
            f"{name} is {list(scale.shape)} for a weight of {[outputs, inputs]}: it must be 1 or [{outputs}, 1]"
        )
    wanted = (-(-outputs // block[0]), -(-inputs // block[1]))
    if tuple(scale.shape) != wanted:
        raise BadWeights(
            f"{name} is {list(scale.shape)}, and blocks of {list(block)} of {[outputs, inputs]} want {list(wanted)}"
        )
    whole = scale.repeat_interleave(block[0], 0)[:outputs].repeat_interleave(block[1], 1)[:, :inputs]
    return weight.float() * whole
