"""Log probabilities in OpenAI's and vLLM's shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from llmendpoint_server.core.request import TokenLogprobs

LOWEST = -9999.0
"""Stands for minus infinity, which JSON does not have; vLLM's number."""


@dataclass(frozen=True)
class Namer:
    """How tokens are named. `as_ids`: by vLLM's `token_id:5`, which is unique, instead of their text."""

    text_of: Callable[[int], tuple[str, bytes]]
    as_ids: bool = False

    def name(self, token: int) -> str:
        return f"token_id:{token}" if self.as_ids else self.text_of(token)[0]


def _finite(logprob: float) -> float:
    return max(logprob, LOWEST)


def chat_logprobs(scores: Iterable[TokenLogprobs], namer: Namer) -> dict[str, Any]:
    def entry(token: int, logprob: float) -> dict[str, Any]:
        data = list(namer.text_of(token)[1])
        return {"token": namer.name(token), "logprob": _finite(logprob), "bytes": data}

    return {
        "content": [
            {
                **entry(score.token, score.logprob),
                "top_logprobs": [entry(token, logprob) for token, logprob in score.top],
            }
            for score in scores
        ],
        "refusal": None,
    }


def text_logprobs(
    tokens: Sequence[int], scores: Sequence[TokenLogprobs | None], namer: Namer, offset: int
) -> tuple[dict[str, Any], int]:
    """Of the older kind. The first token of a prompt has no score. `offset`: characters before the first token. Returns also
    those after the last one."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(namer.text_of(token)[0])
    told = {
        "tokens": [namer.name(token) for token in tokens],
        "token_logprobs": [None if score is None else _finite(score.logprob) for score in scores],
        "top_logprobs": [None if score is None else _alternatives(score, namer) for score in scores],
        "text_offset": offsets,
    }
    return told, offset


def _alternatives(score: TokenLogprobs, namer: Namer) -> dict[str, float]:
    """By name; the chosen token is always there, so there may be one more than the caller asks for."""
    found: dict[str, float] = {}
    for token, logprob in (*score.top, (score.token, score.logprob)):
        found.setdefault(namer.name(token), _finite(logprob))
    return found


def prompt_logprobs(scores: Iterable[TokenLogprobs | None], namer: Namer) -> list[dict[str, Any] | None]:
    """vLLM's: by token id. `rank`: 1 is the most probable one."""

    def entry(token: int, logprob: float, rank: int) -> dict[str, Any]:
        return {"logprob": _finite(logprob), "rank": rank, "decoded_token": namer.text_of(token)[0]}

    def by_id(score: TokenLogprobs) -> dict[str, Any]:
        found = {
            str(token): entry(token, logprob, rank) for rank, (token, logprob) in enumerate(score.top, 1)
        }
        found.setdefault(str(score.token), entry(score.token, score.logprob, score.rank))
        return found

    return [None if score is None else by_id(score) for score in scores]
