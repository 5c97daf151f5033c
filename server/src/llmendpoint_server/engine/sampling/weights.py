"""Logits to weights: unnormalised probabilities as integers, so that their sum is exact in any order."""

from __future__ import annotations

import torch

_SUM_BITS = 62
"""The sum of a row's weights has at most this many bits, so that it fits in an int64."""


def weigh(logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Weights `[rows, vocabulary]`. With a vocabulary of 2**18 tokens the most probable token has the weight 2**43, and a
    token that is 2**43 times less probable has the weight 0."""
    logits = logits.float()
    # Subtract before dividing: then a tiny temperature gives 0 and -inf, never inf - inf.
    weights = ((logits - logits.max(-1, keepdim=True).values) / temperature[:, None]).exp()
    return weights.mul_(2.0 ** (_SUM_BITS - logits.shape[1].bit_length())).long()
