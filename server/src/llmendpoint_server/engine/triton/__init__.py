"""The operators of fused modules on CUDA, as Triton kernels, which are compiled when they are first called.

`find` alone is for other folders. The modules beside this one import Triton, and not every torch has it.
"""

from __future__ import annotations

from contextlib import ExitStack

import structlog
import torch

from llmendpoint_server.engine.operators import Operators, Scale

DTYPES = frozenset({torch.float32, torch.float16, torch.bfloat16})


def find(device: torch.device, dtype: torch.dtype) -> Operators | None:
    """The operators if they compile here, or None; the log says which, or the cause."""
    log = structlog.get_logger()
    try:
        found = _tried(device, dtype)
    except torch.AcceleratorError:
        raise
    except (
        Exception
    ) as error:  # any: no Triton, no C compiler, a folder that cannot be written, a device that is too old
        cause = f"{type(error).__name__}: {error}"
        log.warning("without Triton's kernels: torch's operators serve, which are slower", cause=cause)
        return None
    log.info("Triton's kernels")
    return found


def _tried(device: torch.device, dtype: torch.dtype) -> Operators:
    if dtype not in DTYPES:
        raise TypeError(f"the kernels do not compute in {str(dtype).removeprefix('torch.')}")
    from llmendpoint_server.engine.triton.operators import TritonOperators  # Triton may be missing

    operators = TritonOperators(device, dtype)
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        x = torch.ones(2, 8, dtype=dtype, device=device)
        operators.norm(x, Scale(torch.ones(8, device=device), 1e-6))
    return operators
