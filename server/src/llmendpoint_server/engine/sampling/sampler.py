"""The stages in their order, for the rows of one step."""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch

from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling.draws import draw, most_probable
from llmendpoint_server.engine.sampling.filters import BINS, cut
from llmendpoint_server.engine.sampling.rows import RowsOfBatch
from llmendpoint_server.engine.sampling.weights import weigh

NOT_A_NUMBER = -1
"""Stands for a token if the logits hold a NaN or an infinity that no model should give."""
WEIGHTS_AT_ONCE = {"cpu": 2**18, "cuda": 2**23}
"""Rows are drawn in slices of at most this many weights, or bins of a small vocabulary, but at least one row. A weight
takes some 40 bytes in between. So a slice takes 10 MB on a CPU, a row of 152k tokens: more leaves its cache. On CUDA it
takes 340 MB."""


class Sampler:
    """Draws one token a row. Keeps the arrays of a batch's parameters from step to step."""

    def __init__(self) -> None:
        self._rows_of = RowsOfBatch()

    def __call__(
        self, logits: torch.Tensor, sequences: Row[Sequence], positions: Row[int] | None = None
    ) -> list[int]:
        """One token id per row of `logits` `[rows, vocabulary]`; `NOT_A_NUMBER` for a row that is not finite. `positions`: where
        the row's token will stand in its sequence; None: each at its sequence's end."""
        rows, noise = self._rows_of(sequences, logits.device, positions)
        highest, tokens = most_probable(logits)
        finite = highest.isfinite()
        drawn = rows.drawn[finite[rows.drawn]]
        at_once = max(1, WEIGHTS_AT_ONCE[logits.device.type] // max(logits.shape[1], BINS))
        for start in range(0, len(drawn), at_once):
            some = drawn[start : start + at_once]
            weights = weigh(logits[some], highest[some], rows.temperature[some])
            tokens[some] = draw(cut(weights, rows.top_p[some], rows.top_k[some]), noise[some])
        return torch.where(finite, tokens, NOT_A_NUMBER).tolist()
