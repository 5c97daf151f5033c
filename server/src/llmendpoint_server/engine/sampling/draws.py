"""Weights to tokens."""

from __future__ import annotations

import torch

_BLOCK = 128


def most_probable(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's largest logit, NaN if it holds one, and the first token that has it. Faster than `max`, which looks for
    the token in all of the row, where this looks in one block of it."""
    size = logits.shape[1]
    whole = size - size % _BLOCK
    parts = [logits[:, :whole].view(len(logits), -1, _BLOCK).amax(-1)] if whole else []
    if whole < size:
        parts.append(logits[:, whole:].amax(-1, keepdim=True))
    largest = torch.cat(parts, -1)
    block = largest.argmax(-1, keepdim=True)
    places = (block * _BLOCK + torch.arange(_BLOCK, device=logits.device)).clamp_(max=size - 1)
    within = logits.gather(1, places).argmax(-1, keepdim=True)
    return largest.gather(1, block)[:, 0], places.gather(1, within)[:, 0]


def draw(weights: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Invert each row's cumulative distribution at its noise, in the order of the vocabulary: `[rows]`."""
    cumulative = weights.long().cumsum(-1)
    total = cumulative[:, -1:]
    target = (noise[:, None] * total).long()
    target = torch.minimum(target, total - 1)  # a product may be rounded up
    # right=True: the first place whose sum exceeds the target, so a token of weight 0 is never drawn.
    return torch.searchsorted(cumulative, target, right=True)[:, 0]
