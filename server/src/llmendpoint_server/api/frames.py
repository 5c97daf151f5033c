"""The frames between the API process and its checker of grammars: 4 bytes, big-endian, of length, and a body."""

from __future__ import annotations

LENGTH_BYTES = 4


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(LENGTH_BYTES, "big") + body


def length(head: bytes) -> int:
    return int.from_bytes(head, "big")
