"""The draw by our CPU kernel: the tokens of `in_torch`, bit for bit."""

from __future__ import annotations

import torch

from llmendpoint_server.engine.native import DTYPES, Kernels
from llmendpoint_server.engine.sampling.rows import Rows


class InKernel:
    """Rows are shared among torch's threads. It reads each row where it lies, and changes none."""

    def __init__(self, kernels: Kernels) -> None:
        self._sample = kernels.functions.sample
        self._vocabulary = kernels.functions.VOCABULARY

    def takes(self, logits: torch.Tensor) -> bool:
        """Whether it has code for these logits. Every variant of the kernels widens bfloat16, also one that does not compute in it."""
        return (
            logits.device.type == "cpu"
            and logits.dtype in DTYPES
            and 0 < logits.shape[1] <= self._vocabulary
            and logits.stride(1) == 1
        )

    def tokens_of(self, logits: torch.Tensor, rows: Rows, noise: torch.Tensor) -> torch.Tensor:
        """int64 `[rows]`, of logits `[rows, vocabulary]` and noise in [0, 1) `[rows]`."""
        count, size = logits.shape
        if not count == len(noise) == len(rows.temperature):
            raise ValueError(f"{count} rows of logits for {len(rows.temperature)} sequences")
        tokens = torch.empty(count, dtype=torch.int64)
        self._sample(
            int(logits.dtype is torch.bfloat16), logits.data_ptr(), count, logits.stride(0), size,
            rows.temperature.data_ptr(), rows.top_p.data_ptr(), rows.top_k.data_ptr(), noise.data_ptr(),
            tokens.data_ptr(),
        )  # fmt: skip
        return tokens
