"""The draw in torch's operators: on any device, and what the CPU kernel is held to."""

from __future__ import annotations

import torch

from llmendpoint_server.engine.sampling.draws import draw, most_probable
from llmendpoint_server.engine.sampling.filters import BINS, cut
from llmendpoint_server.engine.sampling.rows import NOT_A_NUMBER, Rows
from llmendpoint_server.engine.sampling.weights import weigh

WEIGHTS_AT_ONCE = {"cpu": 2**18, "cuda": 2**23}
"""Rows are drawn in slices of at most this many weights, or bins of a small vocabulary, but at least one row. A weight
takes some 40 bytes in between. So a slice takes 10 MB on a CPU, a row of 152k tokens: more leaves its cache. On CUDA it
takes 340 MB."""


def tokens_of(logits: torch.Tensor, rows: Rows, noise: torch.Tensor) -> torch.Tensor:
    """int64 `[rows]`, of logits `[rows, vocabulary]` and noise in [0, 1) `[rows]`."""
    highest, tokens = most_probable(logits)
    finite = highest.isfinite()
    drawn = rows.drawn[finite[rows.drawn]]
    at_once = max(1, WEIGHTS_AT_ONCE[logits.device.type] // max(logits.shape[1], BINS))
    for start in range(0, len(drawn), at_once):
        some = drawn[start : start + at_once]
        weights = weigh(logits[some], highest[some], rows.temperature[some])
        tokens[some] = draw(cut(weights, rows.top_p[some], rows.top_k[some]), noise[some])
    return torch.where(finite, tokens, NOT_A_NUMBER)
