"""Reads a folder of quantized weights: every tensor under the name that the model itself has for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from llmendpoint_server.engine.formats.groups import FLOATS, BadWeights, Groups
from llmendpoint_server.engine.formats.layer import Format, Stored


@dataclass(slots=True)
class Checkpoint:
    """`weights`: by name, those of quantized layers in the dtype that the model computes in. `groups`: of the layers, by name,
    whose weights are whole numbers in groups. `dense`: how many were quantized in another way."""

    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    groups: dict[str, Groups] = field(default_factory=dict)
    dense: int = 0


def read(folder: Path, form: Format, dtype: torch.dtype) -> Checkpoint:
    """Raises BadWeights for tensors that contradict each other, and for a folder without any quantized layer."""
    found = Checkpoint()
    with ExitStack() as stack:
        try:
            for layer in _layers(folder, stack):
                _take(layer, form, dtype, found)
        except SafetensorError as error:
            raise BadWeights(f"a file of weights cannot be read: {error}") from error
    if not found.groups and not found.dense:
        raise BadWeights(f"quantization_config says {form.title}, and no layer has such weights")
    return found


def _layers(folder: Path, stack: ExitStack) -> Iterator[Stored]:
    """All tensors, layer by layer; a layer's may be in several files."""
    files: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        file = stack.enter_context(safe_open(path, framework="pt"))
        for name in file.keys():  # noqa: SIM118  it is no mapping
            layer, _, part = name.rpartition(".")
            files.setdefault(layer, {})[part] = (file, name)
    for layer, parts in files.items():
        yield Stored(layer, {part: file.get_tensor(name) for part, (file, name) in parts.items()})


def _take(layer: Stored, form: Format, dtype: torch.dtype, into: Checkpoint) -> None:
    prefix = f"{layer.name}." if layer.name else ""
    plain: Mapping[str, torch.Tensor] = layer.tensors
    if form.parts & layer.tensors.keys():
        decoded = form.decode(layer)
        plain = {
            part: tensor for part, tensor in plain.items() if part not in form.parts and part != "weight"
        }
        if isinstance(decoded, Groups):
            into.groups[layer.name] = decoded
            decoded = decoded.dense()
        else:
            into.dense += 1
        into.weights[f"{prefix}weight"] = decoded.to(dtype)
    elif "weight" in plain and plain["weight"].dtype not in FLOATS:
        kind = str(plain["weight"].dtype).removeprefix("torch.")
        raise BadWeights(f"{prefix}weight is {kind}, and there is no scale beside it")
    into.weights.update(
        {f"{prefix}{part}": tensor for part, tensor in plain.items() if part not in _OF_CACHE}
    )


_OF_CACHE = frozenset({"k_scale", "v_scale", "q_scale", "prob_scale"})
"""Scales of another engine's KV cache."""
