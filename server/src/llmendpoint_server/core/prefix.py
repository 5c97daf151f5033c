"""Names for the contents of KV pages: a chain of keyed 128-bit hashes.

A page's name covers its tokens, everything before them, the weights that computed its keys and values, and the caller's
salt. The key is a secret of this process, so that no caller can construct two prompts with one name and read another's
keys and values.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

PageHash = bytes


@dataclass(frozen=True, slots=True)
class Weights:
    """What computes keys and values: a revision of a model, and an adapter on top of it. `adapter` "": none.
    `generation`: how often that adapter was loaded, because the same id may be loaded again with other weights."""

    revision: str
    adapter: str = ""
    generation: int = 0


def root_hash(key: bytes, weights: Weights, salt: str) -> PageHash:
    """The root of every chain of these weights and this salt. Each field has its length before it, so that no two
    different roots hash the same bytes."""
    fields = (weights.revision, weights.adapter, str(weights.generation), salt)
    body = b"".join(len(data).to_bytes(8, "big") + data for data in (field.encode() for field in fields))
    return blake2b(body, digest_size=16, key=key, person=b"root").digest()


def chain_hash(key: bytes, parent: PageHash, tokens: Sequence[int]) -> PageHash:
    """The name of the page that holds `tokens` after the page named `parent`."""
    return blake2b(parent + array("q", tokens).tobytes(), digest_size=16, key=key, person=b"page").digest()
