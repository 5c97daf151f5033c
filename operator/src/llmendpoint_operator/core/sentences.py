"""Sentences of the status: as long as the CRD allows."""

from __future__ import annotations

SENTENCE_LIMIT = 2048
"""Characters; a longer one would make the API server refuse the whole status."""


def fitting(sentence: str, limit: int = SENTENCE_LIMIT) -> str:
    """The sentence, or its beginning."""
    return sentence if len(sentence) <= limit else sentence[: limit - 1] + "…"
