"""All LLMKeys, and the judgement of a key's text. One LLMKey changes at a time, at a cost that does not grow with their number.

The caller learns that its key is not valid, and never why. Texts are compared by their hash, in constant time. Times are seconds
since 1970.
"""

import hmac
from enum import Enum
from typing import NamedTuple

from llmendpoint_gateway.core.identity.caller import MASK
from llmendpoint_gateway.core.identity.credentials import Proof
from llmendpoint_gateway.core.identity.grants import Identity, by_namespace
from llmendpoint_gateway.core.identity.key_objects import Key

MOST_KEYS = 100_000
MOST_CANDIDATES = 8
"""LLMKeys with one id. The oldest ones count: who copies an id later cannot push its owner out."""


class Reason(Enum):
    """Why a request without a valid key is refused. For metrics and logs; the caller does not learn it."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    DISABLED = "disabled"


class Denied(NamedTuple):
    """`key`: `namespace/name` of the LLMKey, if the text is that of one."""

    reason: Reason
    key: str = ""


class _Known(NamedTuple):
    key: Key
    identity: Identity


class Keys:
    """`left_out`: how many LLMKeys there is no room for; none of these lets anybody in."""

    def __init__(self, most: int = MOST_KEYS) -> None:
        self._most = most
        self._known: dict[str, _Known] = {}
        self._by_id: dict[str, tuple[_Known, ...]] = {}  # the oldest first
        self._left_out: set[str] = set()

    def __len__(self) -> int:
        return len(self._known)

    @property
    def left_out(self) -> int:
        return len(self._left_out)

    @property
    def names(self) -> list[str]:
        """`namespace/name` of all that were put, also of those that there was no room for."""
        return [*self._known, *self._left_out]

    def put(self, key: Key) -> bool:
        """Take over a new or changed LLMKey. Returns whether there is room for it."""
        name = key.key
        before = self._known.get(name)
        if before is not None and before.key == key:
            return True
        self.drop(name)
        if len(self._known) >= self._most:
            if len(self._left_out) < self._most:
                self._left_out.add(name)
            return False
        known = _Known(key, _identity(key))
        self._known[name] = known
        same = (*self._by_id.get(key.id, ()), known)
        self._by_id[key.id] = tuple(sorted(same, key=lambda one: (one.key.created, one.key.key)))
        return True

    def drop(self, name: str) -> None:
        """The LLMKey `namespace/name` is gone."""
        self._left_out.discard(name)
        known = self._known.pop(name, None)
        if known is None:
            return
        rest = tuple(one for one in self._by_id[known.key.id] if one is not known)
        if rest:
            self._by_id[known.key.id] = rest
        else:
            del self._by_id[known.key.id]

    def judge(self, proof: Proof, now: float) -> Identity | Denied:
        """Of several LLMKeys with this hash the oldest decides, also if it lets nobody in: a copy that another namespace has made of it must
        not take its callers over."""
        found: tuple[_Known, float] | None = None
        for known in self._by_id.get(proof.id, ())[:MOST_CANDIDATES]:
            for one in known.key.hashes:
                if hmac.compare_digest(one.digest, proof.digest) and found is None:
                    found = known, one.expires
        if found is None:
            return Denied(Reason.UNKNOWN)
        known, expires = found
        if known.key.disabled:
            return Denied(Reason.DISABLED, known.identity.key)
        if now >= min(expires, known.key.expires):
            return Denied(Reason.EXPIRED, known.identity.key)
        return known.identity


def _identity(key: Key) -> Identity:
    """Its number is another one in each process, as that of an address is."""
    number = hash(("LLMKey", key.key)) & MASK
    return Identity(key.key, key.namespace, by_namespace(key.grants), key.priority, number or 1)
