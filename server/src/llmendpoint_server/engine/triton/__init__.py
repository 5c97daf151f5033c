"""Triton kernels for CUDA, which are compiled when they are first called.

What is in this module serves without Triton, too. The modules beside it import Triton, and not every torch has it.
"""

from __future__ import annotations

from contextlib import ExitStack

import structlog
import torch

from llmendpoint_server.engine.operators import Operators, Scale
from llmendpoint_server.engine.sampling import static
from llmendpoint_server.engine.sampling.static import Stages

DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})
"""What the kernels compute in."""


def find(device: torch.device, dtype: torch.dtype) -> Operators | None:
    """The operators if they compile here, or None; the log says which, or the cause."""
    log = structlog.get_logger()
    try:
        found = _tried(device, dtype)
    except torch.AcceleratorError:
        raise
    except Exception as error:  # any: no Triton, no C compiler, nowhere to write, too old a device
        cause = f"{type(error).__name__}: {error}"
        log.warning("without Triton's kernels: torch's operators serve, which are slower", cause=cause)
        return None
    log.info("Triton's kernels")
    return found


def can_launch_ahead(device: torch.device) -> bool:
    """Whether a kernel may be launched before the one before it has ended: from Hopper on. To torch, devices of AMD are CUDA devices too."""
    if device.type != "cuda" or torch.version.hip is not None:
        return False
    return torch.cuda.get_device_capability(device) >= (9, 0)


def stages(device: torch.device) -> Stages:
    """What draws the tokens of a graph: the kernels if they compile here, else torch's operators. `find` logs the cause."""
    if device.type != "cuda":
        return static
    try:
        from llmendpoint_server.engine.triton import sampling  # Triton may be missing

        with torch.cuda.device(device):
            logits, highest = torch.ones(1, 16, device=device), torch.ones(1, device=device)
            tokens = torch.zeros(1, dtype=torch.int64, device=device)
            sampling.most_probable(logits, highest, tokens)
            parameters = torch.tensor([[1.0], [0.5], [5.0], [0.5]], dtype=torch.float64, device=device)
            sampling.draw(logits, highest, parameters, tokens, filtered=True)
    except torch.AcceleratorError:
        raise
    except Exception:  # any, as above
        return static
    return sampling


def _tried(device: torch.device, dtype: torch.dtype) -> Operators:
    if dtype not in DTYPES:
        raise TypeError(f"the kernels do not compute in {str(dtype).removeprefix('torch.')}")
    from llmendpoint_server.engine.triton.operators import TritonOperators  # Triton may be missing

    operators = TritonOperators(device, dtype, ahead=can_launch_ahead(device))
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        x = torch.ones(2, 8, dtype=dtype, device=device)
        operators.norm(x, Scale(torch.ones(8, device=device), 1e-6))
    return operators
