"""Which files hold a model's weights, and what the header of a safetensors file says of them.

Format: 8 bytes, little endian, the header's length; the header, JSON from tensor name to `dtype`, `shape` and
`data_offsets`; the tensors. Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import WeightsError
from .model import SAFETENSORS_FLOATS, Shape

INDEX = "model.safetensors.index.json"
LENGTH_BYTES = 8
CHOICES = (("model", ".safetensors"), ("", ".safetensors"), ("", ".gguf"), ("pytorch_model", ".bin"))
"""Beginnings and endings of names of weight files. Engines load the first kind that exists."""

HEADER_LIMIT = 100_000_000
"""Bytes; the format's own limit."""


def weight_files(names: Iterable[str], index: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """The files that an engine loads: those in the index, else model*.safetensors, else all of one kind. A repository
    often holds the same weights twice (consolidated.safetensors, *.bin)."""
    found = sorted(names)
    if index is not None:
        listed = {str(name) for name in (index.get("weight_map") or {}).values()}
        if listed:
            return tuple(sorted(listed))
    for beginning, ending in CHOICES:
        chosen = tuple(n for n in found if "/" not in n and n.startswith(beginning) and n.endswith(ending))
        if chosen:
            return chosen
    return ()


def header_length(first: bytes, name: str) -> int:
    """Bytes of the header, from a file's first 8 bytes. Raises WeightsError."""
    length = int.from_bytes(first[:LENGTH_BYTES], "little")
    if len(first) < LENGTH_BYTES or not 2 <= length <= HEADER_LIMIT:
        raise WeightsError(f"{name} is no safetensors file: it does not begin with the length of a header")
    return length


def parse_header(header: bytes, name: str) -> dict[str, int]:
    """Bytes of tensors by dtype. Raises WeightsError."""
    try:
        tensors = json.loads(header)
        found: dict[str, int] = {}
        for key, tensor in tensors.items():
            if key != "__metadata__":
                begin, end = tensor["data_offsets"]
                found[str(tensor["dtype"])] = found.get(str(tensor["dtype"]), 0) + int(end) - int(begin)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{name} is no safetensors file: its header cannot be read ({error})") from None
    return found


def shape_of(shape: Shape, names: Iterable[str]) -> Shape:
    """The shape of a model whose weights are in these files. A GGUF file says itself that it is quantized, config.json does not."""
    return replace(shape, quantization="gguf") if any(name.endswith(".gguf") for name in names) else shape


def unread(size: int, shape: Shape) -> dict[str, int]:
    """For files of which only the size is known: bytes in the config's dtype, or as whole numbers if the model is
    quantized."""
    if shape.quantization is not None:
        return {"U8": size}
    return {{dtype: key for key, dtype in SAFETENSORS_FLOATS.items()}[shape.dtype]: size}
