"""AWQ's layout for matrix products (`gemm`), as AutoAWQ writes it.

`qweight` int32 `[inputs, outputs / 8]` has eight outputs of an input in a word, in the order of `ORDER`; so has `qzeros` int32
`[groups, outputs / 8]`. `scales` `[groups, outputs]`. A weight is `(number - zero) * scale`.
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

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of a word's eight outputs its n-th four bits are."""
BITS = (4,)


class Awq:
    parts = frozenset({"qweight", "qzeros", "scales"})

    def __init__(self, options: Mapping[str, Any]) -> None:
        whole_number(options, ("bits", "w_bit"), BITS)
        self._group_size = whole_number(options, ("group_size", "q_group_size"))
        version = str(options.get("version") or "gemm").lower()
        if version != "gemm":
            raise UnsupportedWeights(f"are AWQ in the layout {version!r}; gemm is read")
        self.title = "AWQ, 4 bits"

    def decode(self, layer: Stored) -> Groups | torch.Tensor:
        words = layer.get("qweight")
        if words.dim() != 2:
            raise BadWeights(f"{layer.full('qweight')} has {words.dim()} dimensions, and must have 2")
        inputs, outputs = words.shape[0], words.shape[1] * 8
        count = group_count(inputs, self._group_size, layer.name)
        scales, zeros = layer.get("scales"), layer.get("qzeros")
        expect(layer.full("qweight"), words, (inputs, outputs // 8), WORDS)
        expect(layer.full("scales"), scales, (count, outputs), FLOATS)
        expect(layer.full("qzeros"), zeros, (count, outputs // 8), WORDS)
        values, zero = (_in_order(unpack(one, 4, 1)) - 8 for one in (words, zeros))
        return grouped(values.t(), scales.t(), zero.t(), 4)


def _in_order(numbers: torch.Tensor) -> torch.Tensor:
    places = [ORDER.index(output) for output in range(8)]
    return numbers.view(len(numbers), -1, 8)[:, :, places].flatten(1)
