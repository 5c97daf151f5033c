"""Reads what peft's `save_pretrained` writes, and refuses by name what this engine does not compute.

Weights are read by this module's own reader of safetensors, from memory: a file that is cut while it is mapped would end the process.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
CONFIG_BYTES_MAX, HEADER_BYTES_MAX = 2**20, 4 * 2**20
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
READ_BYTES = 2**20
SHOWN = 120
"""Characters to show of a name from a file."""

_NEUTRAL = frozenset(
    {
        "auto_mapping", "base_model_name_or_path", "revision", "inference_mode", "peft_version", "r", "target_modules",
        "exclude_modules", "lora_alpha", "lora_dropout", "use_rslora", "layers_to_transform", "layers_pattern",
        "rank_pattern", "megatron_core", "eva_config", "qalora_group_size", "runtime_config", "task_type", "peft_type",
        "bias", "init_lora_weights", "ensure_weight_tying", "monteclora_config", "lora_ga_config", "corda_config",
        "loftq_config",
    }
)  # fmt: skip
"""Fields of adapter_config.json that are read, or that training alone needs. Any other one that is set changes what is computed."""
_OF_OTHER_BASES = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Beginnings of `init_lora_weights` that change the base model's own weights."""
_KEY = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")


class Unfit(Exception):
    """This model cannot have the adapter. The text says why, and names the field, the tensor or the module."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Of one linear layer. `a` `[rank, inputs]`, `b` `[outputs, rank]`, as the file has them. `scale`: of their product."""

    a: torch.Tensor
    b: torch.Tensor
    scale: float


def read_adapter(folder: Path, linears: Mapping[str, tuple[int, int]], most_rank: int) -> dict[str, Pair]:
    """The pairs by the name of their layer. `linears`: inputs and outputs of the layers that may be adapted. Raises Unfit."""
    config = _read_config(folder / CONFIG)
    room = sum(4 * most_rank * (inputs + outputs) for inputs, outputs in linears.values())
    tensors = _read_tensors(folder / WEIGHTS, room)
    found: dict[str, dict[str, torch.Tensor]] = {}
    for key, tensor in tensors.items():
        matched = _KEY.fullmatch(key)
        if matched is None or matched[1] not in linears:
            raise Unfit(_why_not(key, matched))
        found.setdefault(matched[1], {})[matched[2]] = tensor
    if not found:
        raise Unfit(f"{WEIGHTS} has no tensors")
    return {name: _pair(name, one, linears[name], most_rank, config) for name, one in found.items()}


def _why_not(key: str, matched: re.Match[str] | None) -> str:
    shown = key[:SHOWN]
    if "lora_embedding" in key or "embed" in key:
        return f"{shown}: adapters of embeddings are not served"
    if "lora_magnitude_vector" in key:
        return f"{shown}: DoRA is not served"
    if matched is None:
        return f"{shown}: only lora_A.weight and lora_B.weight of linear layers are served"
    return f"{matched[1][:SHOWN]}: this model has no linear layer of this name that may be adapted (lm_head and experts may not)"


def _pair(
    name: str, tensors: Mapping[str, torch.Tensor], shape: tuple[int, int], most_rank: int, config: Mapping[str, Any]
) -> Pair:  # fmt: skip
    if set(tensors) != {"A", "B"}:
        raise Unfit(f"{name}: lora_{'B' if 'A' in tensors else 'A'}.weight is missing")
    a, b = tensors["A"], tensors["B"]
    inputs, outputs = shape
    rank = a.shape[0] if a.dim() == 2 else 0
    if not 0 < rank <= most_rank:
        raise Unfit(f"{name}: its rank is {rank}; --max-lora-rank is {most_rank}")
    if tuple(a.shape) != (rank, inputs) or tuple(b.shape) != (outputs, rank):
        raise Unfit(
            f"{name}: lora_A is {list(a.shape)} and lora_B {list(b.shape)}; a layer of {inputs} inputs and {outputs} outputs "
            f"has [{rank}, {inputs}] and [{outputs}, {rank}]: the adapter is of another base model"
        )
    if not (a.isfinite().all() and b.isfinite().all()):
        raise Unfit(f"{name}: a weight is not a number, or infinite")
    return Pair(a, b, config["lora_alpha"] / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _read_config(path: Path) -> dict[str, Any]:
    """Raises Unfit."""
    try:
        if path.stat().st_size > CONFIG_BYTES_MAX:
            raise Unfit(f"{CONFIG} has more than {CONFIG_BYTES_MAX} bytes")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise Unfit(f"{CONFIG} cannot be read: {type(error).__name__}") from error
    if not isinstance(config, dict):
        raise Unfit(f"{CONFIG} is no JSON object")
    _check_config(config)
    return config


def _check_config(config: Mapping[str, Any]) -> None:
    if config.get("peft_type") != "LORA":
        raise Unfit(f"{CONFIG}: peft_type is {_shown(config.get('peft_type'))}; only LORA is served")
    if config.get("task_type") not in (None, "CAUSAL_LM"):
        raise Unfit(f"{CONFIG}: task_type is {_shown(config['task_type'])}; only CAUSAL_LM is served")
    if config.get("bias", "none") != "none":
        raise Unfit(f"{CONFIG}: bias is {_shown(config['bias'])}; only none is served")
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start.lower().startswith(_OF_OTHER_BASES):
        raise Unfit(
            f"{CONFIG}: init_lora_weights is {_shown(start)}, which changes the base model's own weights; convert the adapter"
        )
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float) or isinstance(alpha, bool) or not 0 < alpha < 1e6:
        raise Unfit(
            f"{CONFIG}: lora_alpha is {_shown(alpha)}; it must be a number above 0 and below a million"
        )
    for field, value in config.items():
        if value and field not in _NEUTRAL and not (field == "lora_alpha" or field.startswith("megatron")):
            raise Unfit(f"{CONFIG}: {field[:SHOWN]} is set, which is not served; only plain LoRA is")


def _shown(value: object) -> str:
    return repr(value)[:SHOWN]


def _read_tensors(path: Path, room: int) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, as views of its bytes. `room`: the most bytes of weights. Raises Unfit."""
    try:
        data = _read_bytes(path, room + HEADER_BYTES_MAX)
    except OSError as error:
        raise Unfit(f"{WEIGHTS} cannot be read: {error.strerror or error}") from error
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 0 < size <= min(HEADER_BYTES_MAX, len(data) - 8):
        raise Unfit(f"{WEIGHTS} is no safetensors file, or is cut")
    try:
        header = json.loads(bytes(data[8 : 8 + size]))
        entries = {str(name): entry for name, entry in header.items() if name != "__metadata__"}
        return _tensors(entries, data, 8 + size)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise Unfit(f"{WEIGHTS} has a header that is wrong: {type(error).__name__}") from error


def _tensors(entries: Mapping[str, Any], data: bytearray, base: int) -> dict[str, torch.Tensor]:
    """Each byte is of one tensor at most: tensors that are copied take no more than the file does."""
    left, found = len(data) - base, {}
    for name, entry in entries.items():
        found[name] = _tensor(name, entry, data, base)
        left -= found[name].nbytes
        if left < 0:
            raise Unfit(f"{name[:SHOWN]}: it lies over another tensor")
    return found


def _read_bytes(path: Path, most: int) -> bytearray:
    """In pieces, so that other threads go on meanwhile."""
    with path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        if size > most:
            raise Unfit(
                f"{WEIGHTS} has {size} bytes; an adapter of this model, of the rank of --max-lora-rank, has at most {most}"
            )
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size and (read := file.readinto(view[at : at + READ_BYTES])):
            at += read
    if at < size:
        raise Unfit(f"{WEIGHTS} was cut while it was read")
    return data


def _tensor(name: str, entry: Mapping[str, Any], data: bytearray, base: int) -> torch.Tensor:
    dtype, shape, (start, end) = DTYPES.get(entry["dtype"]), entry["shape"], entry["data_offsets"]
    if dtype is None:
        raise Unfit(f"{name[:SHOWN]}: its dtype is {_shown(entry['dtype'])}; F32, F16 and BF16 are read")
    if (
        len(shape) > 4
        or not all(type(one) is int and one > 0 for one in (*shape, end))
        or type(start) is not int
    ):
        raise Unfit(f"{name[:SHOWN]}: its shape or its place in the file is wrong")
    count = math.prod(shape)
    if not 0 <= start < end <= len(data) - base or end - start != count * dtype.itemsize:
        raise Unfit(f"{name[:SHOWN]}: its bytes do not lie in the file, or do not fit its shape")
    if (base + start) % dtype.itemsize:
        return torch.frombuffer(data[base + start : base + end], dtype=dtype).view(shape)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=base + start).view(shape)
