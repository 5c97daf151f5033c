"""Writes checkpoints with quantized weights number by number, as their formats say, and knows what weights these stand for.

It shares nothing with the code that reads them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
Tensors = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Numbers:
    """Whole numbers from 0 on, `[outputs, inputs]`, and the scale and the zero `[outputs, groups]` and the group of each input."""

    values: np.ndarray[Any, Any]
    scale: np.ndarray[Any, Any]
    zero: np.ndarray[Any, Any]
    order: np.ndarray[Any, Any]
    bits: int

    def weight(self) -> torch.Tensor:
        found = np.zeros(self.values.shape, np.float32)
        for output in range(found.shape[0]):
            for entry in range(found.shape[1]):
                group = self.order[entry]
                number = int(self.values[output, entry]) - int(self.zero[output, group])
                found[output, entry] = np.float32(number) * np.float32(self.scale[output, group])
        return torch.from_numpy(found)


def numbers(
    weight: torch.Tensor, bits: int, groups: int, symmetric: bool, shuffled: bool, dtype: torch.dtype
) -> Numbers:
    """A weight in numbers; not a good one, but one that has all kinds of numbers."""
    outputs, inputs = weight.shape
    order = np.arange(inputs) // (inputs // groups)
    if shuffled:
        order = np.random.default_rng(5).permutation(order)
    rng = np.random.default_rng(int(outputs * 1000 + inputs))
    middle = 2 ** (bits - 1)
    zero = np.full((outputs, groups), middle)
    if not symmetric:
        zero = zero + rng.integers(-2, 3, zero.shape)
    most = float(weight.abs().max())
    scale = torch.full((outputs, groups), most / (middle - 3)) * (1 + 0.2 * torch.rand(outputs, groups))
    scale = scale.to(dtype).float()
    per_input = scale[:, torch.from_numpy(order)].numpy()
    values = np.clip(np.rint(weight.float().numpy() / per_input) + zero[:, order], 0, 2**bits - 1)
    return Numbers(values.astype(np.int64), scale.numpy(), zero, order, bits)


def words(rows: Iterator[list[int]], bits: int) -> torch.Tensor:
    """Rows of numbers as rows of int32, the first number in the lowest bits."""
    each, found = 32 // bits, []
    for row in rows:
        line = []
        for start in range(0, len(row), each):
            word = 0
            for place, number in enumerate(row[start : start + each]):
                assert 0 <= number < 2**bits
                word |= number << (place * bits)
            line.append(word - 2**32 if word >= 2**31 else word)
        found.append(line)
    return torch.tensor(found, dtype=torch.int32)


def gptq(n: Numbers, dtype: torch.dtype, version: int = 1) -> Tensors:
    # An output's numbers go down a column: packed as rows, then turned.
    packed = words((row.tolist() for row in n.values), n.bits).t().contiguous()
    stored = n.zero - (version == 1)
    return {
        "qweight": packed,
        "qzeros": words((stored[:, g].tolist() for g in range(stored.shape[1])), n.bits),
        "scales": torch.from_numpy(n.scale).t().contiguous().to(dtype),
        "g_idx": torch.from_numpy(n.order).int(),
    }


def awq(n: Numbers, dtype: torch.dtype) -> Tensors:
    def line(numbers: list[int]) -> list[int]:
        return [
            numbers[start + AWQ_ORDER[place]] for start in range(0, len(numbers), 8) for place in range(8)
        ]

    return {
        "qweight": words((line(n.values[:, i].tolist()) for i in range(n.values.shape[1])), 4),
        "qzeros": words((line(n.zero[:, g].tolist()) for g in range(n.zero.shape[1])), 4),
        "scales": torch.from_numpy(n.scale).t().contiguous().to(dtype),
    }


def compressed(n: Numbers, dtype: torch.dtype) -> Tensors:
    found = {
        "weight_packed": words((row.tolist() for row in n.values), n.bits),
        "weight_shape": torch.tensor(n.values.shape),
        "weight_scale": torch.from_numpy(n.scale).to(dtype),
    }
    if (n.zero != 2 ** (n.bits - 1)).any():
        columns = words((n.zero[:, g].tolist() for g in range(n.zero.shape[1])), n.bits)
        found["weight_zero_point"] = columns.t().contiguous()
    if (np.diff(n.order) < 0).any():
        found["weight_g_idx"] = torch.from_numpy(n.order).int()
    return found


def whole(n: Numbers, dtype: torch.dtype) -> Tensors:
    middle = 2 ** (n.bits - 1)
    found = {
        "weight": torch.from_numpy(n.values - middle).to(torch.int8),
        "weight_scale": torch.from_numpy(n.scale).to(dtype),
    }
    if (n.zero != middle).any():
        found["weight_zero_point"] = torch.from_numpy(n.zero - middle).to(torch.int8)
    return found


def fp8(weight: torch.Tensor, block: tuple[int, int] | None, name: str) -> tuple[Tensors, torch.Tensor]:
    """Tensors, and the weight that they stand for. `block`: None for one scale; an output's is (1, inputs)."""
    outputs, inputs = weight.shape
    high, wide = block or (outputs, inputs)
    scale = torch.zeros(-(-outputs // high), -(-inputs // wide))
    stored = torch.zeros(outputs, inputs, dtype=torch.float8_e4m3fn)
    meant = torch.zeros(outputs, inputs)
    for i in range(scale.shape[0]):
        for j in range(scale.shape[1]):
            part = slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide)
            scale[i, j] = weight[part].abs().max() / 448
            stored[part] = (weight[part] / scale[i, j]).to(torch.float8_e4m3fn)
            meant[part] = stored[part].float() * scale[i, j]
    return {"weight": stored, name: scale if block else scale.view(1)}, meant


@dataclass
class Made:
    """A folder, and the weights that a model of it has."""

    folder: Path
    weights: Tensors = field(default_factory=dict)


def write(
    source: Path,
    to: Path,
    config: dict[str, Any],
    store: Callable[[torch.Tensor], tuple[Tensors, torch.Tensor]],
    endings: tuple[str, ...] = ("_proj",),
) -> Made:
    """A copy of `source`. Its layers with these endings are stored by `store`, the others as they are. In two files, so that a layer may be in both."""
    shutil.copytree(source, to)
    whole_config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps(whole_config | {"quantization_config": config}))
    original = load_file(to / "model.safetensors")
    (to / "model.safetensors").unlink()
    tensors: Tensors = {}
    made = Made(to)
    for name, tensor in original.items():
        layer, _, part = name.rpartition(".")
        if part == "weight" and layer.endswith(endings):
            stored, meant = store(tensor.float())
            tensors |= {f"{layer}.{key}": value.contiguous() for key, value in stored.items()}
            made.weights[name] = meant
        else:
            tensors[name] = made.weights[name] = tensor
    names = sorted(tensors)
    for number in (0, 1):
        save_file({name: tensors[name] for name in names[number::2]}, to / f"model-{number}.safetensors")
    return made
