"""Weights to tokens."""

from __future__ import annotations

import torch


def draw(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Invert each row's cumulative distribution at its noise, in the order of the vocabulary: `[rows]`."""
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    target = (noise[:, None] * total).long()
    target = torch.minimum(target, total - 1)  # a product may be rounded up
    # right=True: the first place whose sum exceeds the target, so a token of weight 0 is never drawn.
    places = torch.searchsorted(cumulative, target, right=True)
    return places[:, 0].clamp_(max=weights.shape[1] - 1)  # only a row with a NaN can exceed it
