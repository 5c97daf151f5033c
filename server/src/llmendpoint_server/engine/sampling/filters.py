"""Which tokens may be drawn: top_k and top_p."""

from __future__ import annotations

import torch


def keep_top(weights: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Keep the `top_k` largest weights, and of those the fewest that reach `top_p` of their sum, at least one; the
    others become 0. Between equal weights the first in the vocabulary wins."""
    size = weights.shape[1]
    most = torch.where(top_k > 0, top_k, size)
    ordered, order = torch.sort(weights, dim=-1, descending=True, stable=True)
    rank = torch.arange(size, device=weights.device)
    ordered.masked_fill_(rank >= most[:, None], 0)
    sums = ordered.cumsum(-1)
    enough = sums - ordered >= top_p[:, None] * sums[:, -1:]
    ordered.masked_fill_(enough & (rank > 0), 0)
    return torch.zeros_like(weights).scatter_(-1, order, ordered)
