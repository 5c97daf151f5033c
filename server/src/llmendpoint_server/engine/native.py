"""The CPU kernels of `llmendpoint_native` that fit this machine, if there are any."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import structlog
import torch

from llmendpoint_server.engine.machine import cpu_flags

try:
    import llmendpoint_native
except ImportError:  # the server runs without it, in torch's operators
    llmendpoint_native = None  # type: ignore[assignment]  # a module that is not there

DTYPES = frozenset({torch.float32, torch.bfloat16})
LAYER_BYTES = 280
"""Of `Layer` in kernels/layer.h."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """One variant of the kernels.

    `lanes`: outputs in a panel of weights. `inputs`: a linear layer's inputs must be a multiple of this. `bf16`: whether it computes in bfloat16;
    all variants compute in float32.
    """

    variant: str
    functions: ModuleType
    lanes: int
    inputs: int
    bf16: bool


def find(device: torch.device, dtype: torch.dtype) -> Kernels | None:
    """The fastest variant for this processor, or None; the log says which, or why there is none."""
    if device.type != "cpu":
        return None
    log = structlog.get_logger()
    try:
        found = _load()
        if dtype not in DTYPES or (dtype is torch.bfloat16 and not found.bf16):
            raise ImportError(f"{found.variant} does not compute in {str(dtype).removeprefix('torch.')}")
    except ImportError as error:
        log.warning("without CPU kernels: torch's operators serve, which are slower", cause=str(error))
        return None
    log.info("CPU kernels", variant=found.variant)
    return found


def _load() -> Kernels:
    """Raises ImportError with the cause."""
    if llmendpoint_native is None:
        raise ImportError("llmendpoint_native is not installed")
    variant, functions = llmendpoint_native.load(cpu_flags())
    try:
        if functions.LAYER != LAYER_BYTES:
            raise AttributeError(f"layers of {functions.LAYER} bytes instead of {LAYER_BYTES}")
        return Kernels(variant, functions, functions.LANES, functions.INPUTS, bool(functions.BF16))
    except AttributeError as error:
        raise ImportError(f"llmendpoint_native is of another version than the server ({error})") from error
