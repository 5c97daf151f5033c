"""The key in a request's headers. Whatever else the headers hold, little of it is looked at."""

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

AUTHORIZATION, X_API_KEY, API_KEY = "authorization", "x-api-key", "api-key"
HEADERS = (AUTHORIZATION, X_API_KEY, API_KEY)
"""That may hold a key, the first one first: OpenAI's SDKs send the first, Anthropic's the second, Azure's the third."""
LONGEST = 512
"""Bytes of a header that are looked at. A key has 64."""
PREFIX = b"llm_"
FORM = re.compile(rb"llm_[a-z0-9]{16}_[A-Za-z0-9_-]{43}")
ID = slice(4, 20)
BEARER = re.compile(rb"bearer[ \t]+", re.IGNORECASE)
USUAL = re.compile(rb"Bearer (" + FORM.pattern + rb")")


class Proof(NamedTuple):
    """What is kept of a key's text while its request lives: no key can be made of it. `digest`: the SHA-256 of the text, in hex."""

    id: str
    digest: str

    def in_namespace(self, namespace: str) -> bytes:
        """What an LLMKey of this namespace has of the key. A copy of it in another namespace is the hash of no key there."""
        return hashlib.sha256(f"{namespace}/{self.digest}".encode()).digest()


class Malformed(Exception):
    """A header begins like a key and is none."""


def find_key(headers: Mapping[str, bytes]) -> bytes | None:
    """The first text in these headers that begins like a key; None: there is none, whatever else they hold. Raises Malformed."""
    usual = USUAL.fullmatch(headers.get(AUTHORIZATION, b""))
    if usual is not None:
        return usual[1]
    for name in HEADERS:
        value = headers.get(name)
        if value is None:
            continue
        text = value[: LONGEST + 1]
        if name == AUTHORIZATION:
            scheme = BEARER.match(text)
            if scheme is None:
                continue
            text = text[scheme.end() :]
        if text.startswith(PREFIX):
            text = text.rstrip(b" \t")
            if not FORM.fullmatch(text) or len(value) > LONGEST:
                raise Malformed
            return text
    return None


def proof_of(text: bytes) -> Proof:
    return Proof(text[ID].decode("ascii"), hashlib.sha256(text).hexdigest())
