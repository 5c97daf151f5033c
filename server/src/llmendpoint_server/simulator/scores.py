"""Log probabilities as a model might give them: the same for the same token at the same place. They mean nothing."""

from __future__ import annotations

import math
import random

from llmendpoint_server.core.request import FinishReason, Request, RequestOutput, TokenLogprobs
from llmendpoint_server.simulator.tokens import encode

_OTHERS = tuple(encode(letter)[0] for letter in "abcdefghijklmnopqrstu")
"""Tokens that stand for what could have been said instead."""


def scored(request: Request, position: int, token: int, finish: FinishReason | None) -> RequestOutput:
    """The output with the answer's token at `position`, and the log probabilities that are asked for. A token is the most probable one
    of its place, and all that is told of a place adds up to less than 1."""
    prompt, sampling = request.prompt, request.sampling
    said: tuple[TokenLogprobs, ...] = ()
    told: tuple[TokenLogprobs | None, ...] = ()
    if sampling.logprobs is not None:
        said = (_score(token, len(prompt) + position, sampling.logprobs),)
    if sampling.prompt_logprobs is not None and not position:
        most = sampling.prompt_logprobs
        told = None, *(_score(prompt[place], place, most) for place in range(1, len(prompt)))
    return RequestOutput(request.id, (token,), finish, logprobs=said, prompt_logprobs=told)


def _score(token: int, place: int, most: int) -> TokenLogprobs:
    chance = random.Random(f"{token}/{place}").uniform(0.51, 0.99)
    own, left, others = math.log(chance), 1 - chance, []
    for other in [other for other in _OTHERS if other != token][: max(most - 1, 0)]:
        left /= 2
        others.append((other, math.log(left)))
    return TokenLogprobs(token, own, ((token, own), *others)[:most], 1)
