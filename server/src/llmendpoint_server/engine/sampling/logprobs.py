"""Log probabilities of chosen tokens and of prompts, for the rows that ask.

They are the model's own: log softmax in float32 of the logits as they came, before a bias, penalties, temperature, top_p and
top_k. It reads what was sampled and changes none of it.
"""

from __future__ import annotations

from collections.abc import Sequence as Row
from itertools import islice

import torch

from llmendpoint_server.core.batch import Sampled, Scheduled
from llmendpoint_server.core.request import TokenLogprobs
from llmendpoint_server.engine.sampling.in_torch import WEIGHTS_AT_ONCE


def with_logprobs(logits: torch.Tensor, rows: Row[Scheduled], sampled: list[Sampled]) -> list[Sampled]:
    """`sampled` with the log probabilities that its requests ask for. `rows`: those that sample; each has as many lines of
    `logits` `[lines, vocabulary]` as its draft has tokens, and one."""
    asked = [row.sequence.request.sampling.logprobs for row in rows]
    if asked.count(None) == len(asked):
        return sampled
    chosen: list[tuple[int, int, int]] = []
    """line, token, alternatives"""
    line = 0
    for row, new, most in zip(rows, sampled, asked, strict=True):
        if most is not None:
            chosen += [(line + place, token, most) for place, token in enumerate(new.tokens)]
        line += len(row.draft) + 1
    found = iter(_logprobs(logits, chosen))
    return [
        new if most is None else Sampled(new.tokens, tuple(islice(found, len(new.tokens))))
        for new, most in zip(sampled, asked, strict=True)
    ]


def of_prompts(logits: torch.Tensor, rows: Row[Scheduled]) -> list[tuple[TokenLogprobs, ...]]:
    """For each of `rows`, which all score their prompt, those of the token after each position that it scores. Each has as many
    lines of `logits` as it scores positions."""
    asked = [(row.sequence.request, row.scored) for row in rows]
    tokens = [
        (request.prompt[position + 1], request.sampling.prompt_logprobs or 0)
        for request, positions in asked
        for position in positions
    ]
    found = iter(_logprobs(logits, [(line, *one) for line, one in enumerate(tokens)], ranked=True))
    return [tuple(islice(found, len(positions))) for _, positions in asked]


def _logprobs(
    logits: torch.Tensor, chosen: list[tuple[int, int, int]], *, ranked: bool = False
) -> list[TokenLogprobs]:
    """For each (line, token, how many alternatives)."""
    at_once = max(1, WEIGHTS_AT_ONCE[logits.device.type] // logits.shape[1])
    found = []
    for start in range(0, len(chosen), at_once):
        lines, tokens, most = zip(*chosen[start : start + at_once], strict=True)
        scores = logits[list(lines)].float()
        scores -= scores.logsumexp(-1, keepdim=True)
        # The negative token of a line that is not finite has no score. Its request fails, so nobody reads that.
        places = torch.tensor(tokens, device=logits.device).clamp_(min=0)
        of_tokens = scores.gather(1, places[:, None])
        own = of_tokens[:, 0].tolist()
        ranks = (scores >= of_tokens).sum(-1).tolist() if ranked else [0] * len(own)
        best, ids = scores.topk(min(max(most), logits.shape[1]))
        tops = [tuple(zip(*pair, strict=True)) for pair in zip(ids.tolist(), best.tolist(), strict=True)]
        found += [
            TokenLogprobs(token, score, top[:count], rank)
            for token, score, top, count, rank in zip(tokens, own, tops, most, ranks, strict=True)
        ]
    return found
