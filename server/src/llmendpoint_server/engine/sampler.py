"""Logits to tokens. What a row gets depends on its logits, its parameters and its own noise, never on its neighbours."""

from __future__ import annotations

from collections.abc import Sequence as Rows

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.sequence import Sequence

NOT_A_NUMBER = -1
"""In place of a token, where the logits hold a NaN or an infinity that no model should give."""


def sample(logits: torch.Tensor, sequences: Rows[Sequence]) -> list[int]:
    """One token id per row of `logits` `[rows, vocabulary]`, `NOT_A_NUMBER` for a row that is none."""
    highest, tokens = logits.max(-1)
    drawn = [i for i, sequence in enumerate(sequences) if not sequence.request.sampling.greedy]
    if drawn:
        rows = torch.tensor(drawn, device=logits.device)
        tokens[rows] = _draw(logits[rows], [sequences[i] for i in drawn])
    return torch.where(highest.isfinite(), tokens, NOT_A_NUMBER).tolist()


def _draw(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """By inverting the cumulative distribution at one number per row, which (seed, position) alone decides."""
    params = [sequence.request.sampling for sequence in sequences]
    logits = logits.float()
    temperature = logits.new_tensor([p.temperature for p in params])[:, None]
    # Differences first: a tiny temperature then gives 0 and -inf, never inf - inf.
    weights = ((logits - logits.max(-1, keepdim=True).values) / temperature).exp()
    noise = [uniform(sequence.seed, len(sequence.tokens)) for sequence in sequences]
    order = None
    if any(p.top_p < 1 or p.top_k for p in params):
        weights, order = torch.sort(weights, dim=-1, descending=True, stable=True)
        top_p = logits.new_tensor([p.top_p for p in params])[:, None]
        top_k = torch.tensor([p.top_k or weights.shape[1] for p in params], device=logits.device)[:, None]
        weights = _keep_top(weights, top_p, top_k)
    cumulative = weights.double().cumsum(-1)
    target = torch.tensor(noise, dtype=torch.float64, device=logits.device)[:, None] * cumulative[:, -1:]
    # right=True: the first place whose sum exceeds the target, so a token of weight 0 is never drawn.
    places = torch.searchsorted(cumulative, target, right=True).clamp_(max=weights.shape[1] - 1)
    if order is not None:
        places = order.gather(-1, places)
    return places[:, 0]


def _keep_top(weights: torch.Tensor, top_p: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
    """Sorted weights with 0 for all but the first `top_k`, and of those, the fewest that reach `top_p` of their sum."""
    rank = torch.arange(weights.shape[1], device=weights.device)
    weights = weights.masked_fill(rank >= top_k, 0)
    before = weights.cumsum(-1) - weights
    return weights.masked_fill(before >= top_p * weights.sum(-1, keepdim=True), 0)
