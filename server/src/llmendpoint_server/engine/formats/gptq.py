"""GPTQ's layout, as AutoGPTQ and GPTQModel write it.

`qweight` int32 `[inputs * bits / 32, outputs]` has the numbers of one output in a column, the lowest bits first. `qzeros` int32
`[groups, outputs * bits / 32]` packs along the outputs. `scales` `[groups, outputs]`. `g_idx` `[inputs]`: the group of each input. A weight is
`(number - zero) * scale`. In version 1 the stored zero is one less than the zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from llmendpoint_server.engine.formats.groups import (
    FLOATS,
    WORDS,
    BadWeights,
    Groups,
    UnsupportedWeights,
    expect,
    group_count,
    grouped,
    unpack,
)
from llmendpoint_server.engine.formats.layer import Stored
from llmendpoint_server.engine.formats.options import whole_number

BITS = (4, 8)
VERSIONS = ("gptq", "gptq_v2")


class Gptq:
    parts = frozenset({"qweight", "qzeros", "scales", "g_idx"})

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._bits = whole_number(options, ("bits",), BITS)
        self._group_size = whole_number(options, ("group_size",))
        version = options.get("checkpoint_format") or "gptq"
        if version not in VERSIONS:
            raise UnsupportedWeights(f"are GPTQ in the layout {version!r}; {' and '.join(VERSIONS)} are read")
        if any(not str(key).startswith("-") for key in options.get("dynamic") or {}):
            raise UnsupportedWeights("are GPTQ with other numbers of bits for some layers (`dynamic`)")
        self._offset = int(version == "gptq")
        self.title = f"GPTQ, {self._bits} bits"

    def decode(self, layer: Stored) -> Groups | torch.Tensor:
        bits, each = self._bits, 32 // self._bits
        words = layer.get("qweight")
        if words.dim() != 2:
            raise BadWeights(f"{layer.full('qweight')} has {words.dim()} dimensions, and must have 2")
        inputs, outputs = words.shape[0] * each, words.shape[1]
        count = group_count(inputs, self._group_size, layer.name)
        expect(layer.full("qweight"), words, (inputs // each, outputs), WORDS)
        scales, zeros = layer.get("scales"), layer.get("qzeros")
        expect(layer.full("scales"), scales, (count, outputs), FLOATS)
        expect(layer.full("qzeros"), zeros, (count, -(-outputs // each)), WORDS)
        half = 2 ** (bits - 1)
        values = unpack(words, bits, 0) - half
        zero = (unpack(zeros, bits, 1)[:, :outputs] + self._offset) % 2**bits - half
        order = layer.tensors.get("g_idx")
        in_turn = torch.arange(inputs) // (inputs // count)
        if order is None or torch.equal(order.long(), in_turn):
            return grouped(values.t(), scales.t(), zero.t(), bits)
        expect(layer.full("g_idx"), order, (inputs,), frozenset({torch.int32, torch.int64}))
        if not 0 <= int(order.min()) <= int(order.max()) < count:
            raise BadWeights(f"{layer.full('g_idx')} names groups that are not there; there are {count}")
        order = order.long()
        weight: torch.Tensor = (values - zero[order]) * scales.float()[order]
        return weight.t().contiguous()
