"""The stages in their order, for the rows of one step."""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch

from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.native import Kernels
from llmendpoint_server.engine.sampling import in_torch
from llmendpoint_server.engine.sampling.in_kernel import InKernel
from llmendpoint_server.engine.sampling.rows import RowsOfBatch


class Sampler:
    """Draws one token a row, by the CPU kernel if there are `kernels` and it takes the logits, else in torch: the same tokens. Keeps
    the arrays of a batch's parameters from step to step."""

    def __init__(self, kernels: Kernels | None = None) -> None:
        self._rows_of = RowsOfBatch()
        self._kernel = InKernel(kernels) if kernels is not None else None

    def __call__(
        self, logits: torch.Tensor, sequences: Row[Sequence], positions: Row[int] | None = None
    ) -> list[int]:
        """One token id per row of `logits` `[rows, vocabulary]`; `NOT_A_NUMBER` for a row that is not finite. `positions`: where
        the row's token will stand in its sequence; None: each at its sequence's end."""
        rows, noise = self._rows_of(sequences, logits.device, positions)
        # Stages that change the logits stand here: bias, penalties, the mask of a grammar.
        if self._kernel is not None and self._kernel.takes(logits):
            tokens = self._kernel.tokens_of(logits, rows, noise)
        else:
            tokens = in_torch.tokens_of(logits, rows, noise)
        # Stages that read the logits stand here: log probabilities. The draw leaves the logits as they are.
        return tokens.tolist()
