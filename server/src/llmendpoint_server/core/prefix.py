"""Names for the contents of KV pages: a chain of keyed 128-bit hashes.

A page's name covers its tokens, everything before them, the model's revision and the caller's salt. The key is a secret
of this process, so that no caller can construct two prompts with one name and read another's keys and values.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b

PageHash = bytes


def root_hash(key: bytes, model_revision: str, salt: str) -> PageHash:
    """The root of every chain of this model and salt."""
    body = len(model_revision).to_bytes(4, "big") + model_revision.encode() + salt.encode()
    return blake2b(body, digest_size=16, key=key, person=b"root").digest()


def chain_hash(key: bytes, parent: PageHash, tokens: Sequence[int]) -> PageHash:
    """The name of the page that holds `tokens` after the page named `parent`."""
    return blake2b(parent + array("q", tokens).tobytes(), digest_size=16, key=key, person=b"page").digest()
