"""Logits to weights: unnormalised probabilities as whole numbers, so that their sum is exact in any order."""

from __future__ import annotations

import math

import torch

WEIGHT_BITS = 44
"""The most probable token has the weight 2**44, and one that is 2**44 times less probable has the weight 0."""
_SUM_BITS = 62
"""The sum of a row's weights has at most this many bits, so that it fits in an int64. A vocabulary of 2**18 tokens and
more has smaller weights."""
_SMALLEST = torch.finfo(torch.float32).tiny
"""A temperature below it is 0 in float32."""
_LOWEST = -64.0
"""A power of two that gives the weight 0."""
_POLYNOMIAL = (0.001326472, 0.009671513, 0.055507336, 0.24022242, 0.693147, 1.0)
"""2**x for -0.5 <= x <= 0.5, with a relative error of at most 3e-7; exact at 0."""
_WHOLE = 1.5 * 2**23
"""A small float32 plus this is rounded to a whole number, which is in the last bits of the sum."""


def bits_of_weights(vocabulary: int) -> int:
    """The most probable token's weight is 2 to the power of this."""
    return min(WEIGHT_BITS, _SUM_BITS - vocabulary.bit_length())


def polynomial() -> tuple[float, ...]:
    """For kernels that compute the same: of 2**x for -0.5 <= x <= 0.5, the factor of the highest power first."""
    return _POLYNOMIAL


def weigh(logits: torch.Tensor, highest: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Whole numbers as float32 `[rows, vocabulary]`, proportional to exp(logits / temperature). `highest`, `temperature`:
    `[rows]`. A row must hold no NaN, and a finite largest logit.

    Each operation is one that IEEE 754 defines: other than `exp`, all processors give the same bits.
    """
    scale = (math.log2(math.e) / temperature.double().clamp(min=_SMALLEST)).float()
    # Subtract before scaling: then a tiny temperature gives 0 and -inf, never inf - inf.
    power = (logits.float() - highest.float()[:, None]).mul_(scale[:, None]).clamp_(min=_LOWEST)
    magic = _WHOLE + bits_of_weights(logits.shape[1])
    exponent = power + magic
    power -= exponent - magic
    result = power * _POLYNOMIAL[0]
    for factor in _POLYNOMIAL[1:-1]:
        result.add_(factor).mul_(power)
    result.add_(_POLYNOMIAL[-1])
    result.view(torch.int32).add_(exponent.view(torch.int32).bitwise_left_shift_(23))
    return result.trunc_()
