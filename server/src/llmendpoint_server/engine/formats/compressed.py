"""The layouts of compressed-tensors (llm-compressor): packed whole numbers, whole numbers in 8 bits, and 8-bit floats.

pack-quantized: `weight_packed` int32 `[outputs, inputs * bits / 32]`, the lowest bits first, has each number plus 2^(bits-1).
`weight_zero_point` int32 packs likewise along the outputs. int-quantized: `weight` int8. float-quantized: `weight` e4m3. All: `weight_scale`
`[outputs, groups]`, `[outputs, 1]`, or one number. A weight is `(number - zero) * scale`. What a configuration says of activations is
not done here: they keep their precision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from llmendpoint_server.engine.formats.fp8 import E4M3, block_of, scaled
from llmendpoint_server.engine.formats.groups import (
    EIGHT_BITS,
    FLOATS,
    WORDS,
    BadWeights,
    Groups,
    UnsupportedWeights,
    expect,
    grouped,
    unpack,
)
from llmendpoint_server.engine.formats.layer import Stored

BITS = (4, 8)
LAYOUTS = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized", "mixed-precision")
ORDERED = frozenset({torch.int32, torch.int64})


class CompressedTensors:
    parts = frozenset(
        {
            "weight_packed",
            "weight_scale",
            "weight_zero_point",
            "weight_shape",
            "weight_g_idx",
            "input_scale",
            "input_zero_point",
        }
    )

    def __init__(self, options: Mapping[str, Any]) -> None:
        groups = [one for one in (options.get("config_groups") or {}).values() if isinstance(one, Mapping)]
        schemes: list[Mapping[str, Any]] = [one["weights"] for one in groups if one.get("weights")]
        if not schemes:
            raise UnsupportedWeights("are compressed-tensors, and config_groups names no weights")
        layouts = {options.get("format"), *(one.get("format") for one in groups)} - {None}
        if other := sorted(str(one) for one in layouts if one not in LAYOUTS):
            raise UnsupportedWeights(
                f"are compressed-tensors in the layout {other[0]!r}; {', '.join(LAYOUTS)} are read"
            )
        if (options.get("sparsity_config") or {}).get("format", "dense") != "dense":
            raise UnsupportedWeights("are compressed-tensors that are sparse too")
        widths = {(str(one.get("type", "int")), one.get("num_bits")) for one in schemes}
        self._widths = [bits for bits in BITS if ("int", bits) in widths]
        for kind, bits in sorted(widths, key=str):
            if bits not in (BITS if kind == "int" else (8,)):
                raise UnsupportedWeights(
                    f"are {kind}s of {bits} bits; ints of 4 and 8 and floats of 8 are read"
                )
        blocks = {
            tuple(block) if isinstance(block := one.get("block_structure"), list) else None for one in schemes
        }
        self._block = block_of(next((block for block in blocks if block), None))
        self.title = f"compressed-tensors, {' and '.join(f'{kind} {bits} bits' for kind, bits in sorted(widths, key=str))}"

    def decode(self, layer: Stored) -> Groups | torch.Tensor:
        if "weight_packed" not in layer.tensors and layer.get("weight").dtype is E4M3:
            return scaled(layer, layer.get("weight_scale"), layer.full("weight_scale"), self._block)
        scale = layer.get("weight_scale")
        values, bits = self._packed(layer) if "weight_packed" in layer.tensors else self._whole(layer)
        outputs, inputs = values.shape
        scale = (
            scale.expand(outputs, 1)
            if scale.numel() == 1
            else scale.view(outputs, -1)
            if scale.dim() == 1
            else scale
        )
        count = scale.shape[-1]
        if not count or inputs % count:
            raise BadWeights(
                f"{layer.full('weight_scale')} has {count} groups, which do not divide {inputs} inputs"
            )
        expect(layer.full("weight_scale"), scale, (outputs, count), FLOATS)
        zero = self._zero(layer, bits, outputs, count)
        order = layer.tensors.get("weight_g_idx")
        if order is None or torch.equal(order.long(), torch.arange(inputs) // (inputs // count)):
            return grouped(values, scale, zero, bits)
        expect(layer.full("weight_g_idx"), order, (inputs,), ORDERED)
        if not 0 <= int(order.min()) <= int(order.max()) < count:
            raise BadWeights(
                f"{layer.full('weight_g_idx')} names groups that are not there; there are {count}"
            )
        order = order.long()
        shifted = values if zero is None else values - zero[:, order]
        return shifted * scale.float()[:, order]

    def _packed(self, layer: Stored) -> tuple[torch.Tensor, int]:
        """Numbers `[outputs, inputs]` and their bits, which the sizes of the tensors tell."""
        words, shape = layer.get("weight_packed"), layer.get("weight_shape").tolist()
        if len(shape) != 2 or min(shape) < 1 or words.dim() != 2:
            raise BadWeights(f"{layer.full('weight_shape')} is {shape}, and must be two sizes")
        outputs, inputs = shape
        bits = next((b for b in self._widths if words.shape[1] == -(-inputs * b // 32)), None)
        if bits is None:
            raise BadWeights(
                f"{layer.full('weight_packed')} is {list(words.shape)}, which holds no {inputs} inputs of {self._widths} bits"
            )
        expect(layer.full("weight_packed"), words, (outputs, words.shape[1]), WORDS)
        return unpack(words, bits, 1)[:, :inputs] - 2 ** (bits - 1), bits

    def _whole(self, layer: Stored) -> tuple[torch.Tensor, int]:
        weight = layer.get("weight")
        if weight.dim() != 2:
            raise BadWeights(f"{layer.full('weight')} has {weight.dim()} dimensions, and must have 2")
        expect(layer.full("weight"), weight, tuple(weight.shape), EIGHT_BITS)
        return weight, 8

    def _zero(self, layer: Stored, bits: int, outputs: int, count: int) -> torch.Tensor | None:
        zero = layer.tensors.get("weight_zero_point")
        if zero is None:
            return None
        if zero.dtype is torch.int32 and zero.dim() == 2 and zero.shape[0] == -(-outputs * bits // 32):
            zero = unpack(zero, bits, 0)[:outputs] - 2 ** (bits - 1)
        zero = zero.expand(outputs, 1) if zero.numel() == 1 else zero.reshape(len(zero), -1)
        expect(layer.full("weight_zero_point"), zero, (outputs, count), EIGHT_BITS | {torch.int32})
        return zero
