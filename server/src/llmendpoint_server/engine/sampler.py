"""Logits to tokens. A row's token depends on its logits, its parameters and its own noise, never on other rows.

Each part of a draw is either elementwise or a sum of integers. The order of additions does not change such a sum, so
the result does not depend on the number of rows, nor on how a device splits the work.
"""

from __future__ import annotations

from collections.abc import Sequence as Rows

import torch

from llmendpoint_server.core.randomness import uniform
from llmendpoint_server.core.sequence import Sequence

NOT_A_NUMBER = -1
"""Stands for a token if the logits hold a NaN or an infinity that no model should give."""
WEIGHTS_AT_ONCE = 2**21
"""Rows are drawn in slices of at most this many weights, but at least one row. A weight that is cut by top_p takes 70
bytes in between, so a slice takes some 150 MB: 13 rows of 152k tokens."""
_SUM_BITS = 62
"""The sum of a row's weights has at most this many bits, so that it fits in an int64."""


def sample(logits: torch.Tensor, sequences: Rows[Sequence], positions: Rows[int] | None = None) -> list[int]:
    """One token id per row of `logits` `[rows, vocabulary]`; `NOT_A_NUMBER` for a row that is not finite. `positions`: where the
    row's token will stand in its sequence; None: each at its sequence's end."""
    if positions is None:
        positions = [len(sequence.tokens) for sequence in sequences]
    highest, tokens = logits.max(-1)
    drawn = [i for i, sequence in enumerate(sequences) if not sequence.request.sampling.greedy]
    at_once = max(1, WEIGHTS_AT_ONCE // logits.shape[1])
    for part in (drawn[start : start + at_once] for start in range(0, len(drawn), at_once)):
        rows = torch.tensor(part, device=logits.device)
        noise = [uniform(sequences[i].seed, positions[i]) for i in part]
        tokens[rows] = _draw(logits[rows], [sequences[i] for i in part], noise)
    return torch.where(highest.isfinite(), tokens, NOT_A_NUMBER).tolist()


def _draw(logits: torch.Tensor, sequences: list[Sequence], noise: list[float]) -> torch.Tensor:
    """Invert each row's cumulative distribution, in the order of the vocabulary, at its noise: one number per row, which
    depends on (seed, position) only."""
    weights = _weights(logits, sequences)
    cut = [i for i, sequence in enumerate(sequences) if _cuts(sequence)]
    if cut:
        rows = torch.tensor(cut, device=logits.device)
        weights[rows] = _keep_top(weights[rows], [sequences[i] for i in cut])
    cumulative = weights.cumsum(-1)
    total = cumulative[:, -1:]
    target = (torch.tensor(noise, dtype=torch.float64, device=logits.device)[:, None] * total).long()
    target = torch.minimum(target, total - 1)  # a product may be rounded up
    # right=True: the first place whose sum exceeds the target, so a token of weight 0 is never drawn.
    places = torch.searchsorted(cumulative, target, right=True)
    return places[:, 0].clamp_(max=logits.shape[1] - 1)  # only a row with a NaN can exceed it


def _weights(logits: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Unnormalised probabilities as integers `[rows, vocabulary]`. With a vocabulary of 2**18 tokens the most probable
    token has the weight 2**43, and a token that is 2**43 times less probable has the weight 0."""
    logits = logits.float()
    # A smaller temperature is 0 in float32. Subtract before dividing: then a tiny temperature gives 0 and -inf, never
    # inf - inf.
    smallest = torch.finfo(torch.float32).tiny
    temperature = logits.new_tensor([max(s.request.sampling.temperature, smallest) for s in sequences])
    weights = ((logits - logits.max(-1, keepdim=True).values) / temperature[:, None]).exp()
    return weights.mul_(2.0 ** (_SUM_BITS - logits.shape[1].bit_length())).long()


def _cuts(sequence: Sequence) -> bool:
    return sequence.request.sampling.top_p < 1 or sequence.request.sampling.top_k > 0


def _keep_top(weights: torch.Tensor, sequences: list[Sequence]) -> torch.Tensor:
    """Keep the `top_k` largest weights, and of those the fewest that reach `top_p` of their sum, at least one; the
    others become 0. Between equal weights the first in the vocabulary wins."""
    params = [sequence.request.sampling for sequence in sequences]
    size, device = weights.shape[1], weights.device
    top_p = torch.tensor([p.top_p for p in params], dtype=torch.float64, device=device)[:, None]
    top_k = torch.tensor([min(p.top_k or size, size) for p in params], device=device)[:, None]
    ordered, order = torch.sort(weights, dim=-1, descending=True, stable=True)
    rank = torch.arange(size, device=device)
    ordered.masked_fill_(rank >= top_k, 0)
    sums = ordered.cumsum(-1)
    enough = sums - ordered >= top_p * sums[:, -1:]
    ordered.masked_fill_(enough & (rank > 0), 0)
    return torch.zeros_like(weights).scatter_(-1, order, ordered)
