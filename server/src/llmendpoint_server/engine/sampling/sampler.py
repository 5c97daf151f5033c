"""The stages in their order, for the rows of one step."""

from __future__ import annotations

from collections.abc import Sequence as Row

import torch

from llmendpoint_server.core.sequence import Sequence
from llmendpoint_server.engine.sampling.draws import draw
from llmendpoint_server.engine.sampling.filters import keep_top
from llmendpoint_server.engine.sampling.rows import Rows, rows_of
from llmendpoint_server.engine.sampling.weights import weigh

NOT_A_NUMBER = -1
"""Stands for a token if the logits hold a NaN or an infinity that no model should give."""
WEIGHTS_AT_ONCE = 2**21
"""Rows are drawn in slices of at most this many weights, but at least one row. A weight that is cut by top_p takes 70
bytes in between, so a slice takes some 150 MB: 13 rows of 152k tokens."""


def sample(logits: torch.Tensor, sequences: Row[Sequence]) -> list[int]:
    """One token id per row of `logits` `[rows, vocabulary]`; `NOT_A_NUMBER` for a row that is not finite."""
    highest, tokens = logits.max(-1)
    drawn = [i for i, sequence in enumerate(sequences) if not sequence.request.sampling.greedy]
    if drawn:
        rows = rows_of([sequences[i] for i in drawn], logits.device)
        places = torch.tensor(drawn, device=logits.device)
        at_once = max(1, WEIGHTS_AT_ONCE // logits.shape[1])
        for start in range(0, len(drawn), at_once):
            part = slice(start, start + at_once)
            tokens[places[part]] = _draw(logits[places[part]], rows[part])
    return torch.where(highest.isfinite(), tokens, NOT_A_NUMBER).tolist()


def _draw(logits: torch.Tensor, rows: Rows) -> torch.Tensor:
    weights = weigh(logits, rows.temperature)
    (cut,) = rows.cut.nonzero(as_tuple=True)
    if len(cut):
        weights[cut] = keep_top(weights[cut], rows.top_p[cut], rows.top_k[cut])
    return draw(weights, rows.noise)
