"""All LLMKeys, and the judgement of a key's text. One LLMKey changes at a time, at a cost that does not grow with their number.

The caller learns that its key is not valid, and never why. An LLMKey is found by the hash of the text. How long that takes tells
nothing: a hash is not secret, and nobody can choose a text by its hash. Times are seconds since 1970.
"""

from bisect import bisect_left, insort
from enum import Enum
from typing import NamedTuple

from llmendpoint_gateway.core.identity.caller import MASK
from llmendpoint_gateway.core.identity.credentials import Proof
from llmendpoint_gateway.core.identity.grants import Identity, by_namespace
from llmendpoint_gateway.core.identity.key_objects import Key

MOST_KEYS = 100_000
MOST_RIVALS = 8
"""LLMKeys of one hash that are looked at, the oldest ones."""


class Reason(Enum):
    """Why a request without a valid key is refused. For metrics and logs; the caller does not learn it."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    DISABLED = "disabled"
    CONTESTED = "contested"
    """Namespaces have LLMKeys with this hash that were made in the same second: nobody can tell which one is the copy."""


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
        self._by_proof: dict[Proof, list[_Known]] = {}  # the oldest first
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
        for proof in _proofs(key):
            insort(self._by_proof.setdefault(proof, []), known, key=_age)
        return True

    def drop(self, name: str) -> None:
        """The LLMKey `namespace/name` is gone."""
        self._left_out.discard(name)
        known = self._known.pop(name, None)
        if known is None:
            return
        for proof in _proofs(known.key):
            same = self._by_proof[proof]
            del same[bisect_left(same, _age(known), key=_age)]
            if not same:
                del self._by_proof[proof]

    def judge(self, proof: Proof, now: float) -> Identity | Denied:
        """Of several LLMKeys with this hash the oldest decides, also if it lets nobody in: a copy that another namespace has made of it must
        not take its callers over."""
        same = self._by_proof.get(proof)
        if same is None:
            return Denied(Reason.UNKNOWN)
        known = same[0]
        if len(same) > 1 and _contested(same[:MOST_RIVALS]):
            return Denied(Reason.CONTESTED)
        expires = next(one.expires for one in known.key.hashes if one.digest == proof.digest)
        if known.key.disabled:
            return Denied(Reason.DISABLED, known.identity.key)
        if now >= min(expires, known.key.expires):
            return Denied(Reason.EXPIRED, known.identity.key)
        return known.identity


def _age(known: _Known) -> tuple[str, str]:
    """The order among those with one hash."""
    return known.key.created, known.identity.key


def _proofs(key: Key) -> set[Proof]:
    return {Proof(key.id, one.digest) for one in key.hashes}


def _contested(same: list[_Known]) -> bool:
    """Whether another namespace has one that is as old as the oldest. If all that are looked at are as old, there may be others."""
    equal = [one.key for one in same if one.key.created == same[0].key.created]
    return len(equal) == MOST_RIVALS or any(one.namespace != equal[0].namespace for one in equal)


def _identity(key: Key) -> Identity:
    """Its number is another one in each process, as that of an address is."""
    number = hash(("LLMKey", key.key)) & MASK
    return Identity(key.key, key.namespace, by_namespace(key.grants), key.priority, number or 1)
