"""Which tokens may be drawn: top_k and top_p.

Both are one question: of the tokens in the order of their weights, keep those that have less than a goal before them. No
vocabulary is sorted: a histogram by the first bits of the weights finds in which bin the goal is reached, and only the
tokens of that bin are sorted.
"""

from __future__ import annotations

import torch

from llmendpoint_server.engine.sampling.weights import WEIGHT_BITS

_FRACTION_BITS = 23
_BIN_BITS = 6
"""So many bits of a weight's fraction are in the number of its bin, after the exponent."""
_FIRST_BIN = 126 << _BIN_BITS
BINS = (WEIGHT_BITS + 2) << _BIN_BITS
"""Bins of a row, from the weight 0 to the largest."""


def cut(weights: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Keep the `top_k` largest weights, and of those the fewest that reach `top_p` of their sum, at least one; the
    others become 0, in place. Between equal weights the first in the vocabulary is the larger one."""
    few = (top_k > 0) & (top_k < weights.shape[1])
    if few.any():
        goal = torch.where(few, top_k.double(), torch.inf)
        _keep(weights, torch.ones_like(weights, dtype=torch.int64), goal)
    part = top_p < 1
    if part.any():
        whole = weights.long()
        goal = torch.where(part, top_p * whole.sum(-1), torch.inf)
        _keep(weights, whole, goal)
    return weights


def _keep(weights: torch.Tensor, measure: torch.Tensor, goal: torch.Tensor) -> None:
    """Set weights to 0, except for the largest ones that have a `measure` of less than `goal` before them."""
    bins = (weights.view(torch.int32) >> (_FRACTION_BITS - _BIN_BITS)).sub_(_FIRST_BIN).clamp_(min=0)
    totals = torch.zeros(len(weights), BINS, dtype=torch.int64, device=weights.device)
    totals.scatter_add_(1, bins.long(), measure)
    sums = totals.flip(-1).cumsum(-1)  # from the largest weights on
    passed = (sums < goal[:, None]).sum(-1, keepdim=True)  # this many bins are kept whole
    last = BINS - 1 - passed  # the bin in which the goal is reached; -1: in none
    before = torch.where(passed > 0, sums.gather(1, (passed - 1).clamp_(min=0)), 0)[:, 0]
    # As bits, since masked_fill takes ten times as long: the sign of a difference says whether a bin is above another.
    kept = torch.sub(last.int() - 1, bins).bitwise_right_shift_(31)
    weights.view(torch.int32).bitwise_and_(kept)
    row, token = (bins == last.int()).nonzero(as_tuple=True)
    # Larger weights first within a row; sorts are stable, so equal weights stay in the order of the vocabulary.
    order = weights[row, token].argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    row, token = row[order], token[order]
    amount = measure[row, token]
    above = amount.cumsum(0) - amount  # runs on from row to row; only differences within a row count
    counts = row.bincount(minlength=len(weights))
    first = (counts.cumsum(0) - counts)[row]
    above += before[row] - above[first]
    dropped = above >= goal[row]
    weights[row[dropped], token[dropped]] = 0
