"""The frames between the API process and its checker of grammars: 4 bytes, big-endian, of length, and a body."""

from __future__ import annotations

from typing import Literal

LENGTH_BYTES = 4
Verdict = tuple[Literal["good", "bad", "slow", "ended"], str]
"""Of a grammar: it can be used; it cannot, with the reason; it took too long; its process ended."""


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def length(head: bytes) -> int:
    return int.from_bytes(head, "big")
