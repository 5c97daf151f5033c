"""All LLMKeys, and the judgement of a key's text. One LLMKey changes at a time, at a cost that does not grow with their number.

The caller learns that its key is not valid, and never why. Texts are compared by their hash, in constant time. Times are seconds
since 1970.

An id belongs to the namespace of the oldest LLMKey with it. What other namespaces copy of it lets nobody in.
"""

import hmac
from bisect import bisect_left, insort
from collections import Counter
from enum import Enum
from itertools import chain
from typing import NamedTuple

from llmendpoint_gateway.core.identity.caller import MASK
from llmendpoint_gateway.core.identity.credentials import Proof
from llmendpoint_gateway.core.identity.grants import Identity, by_namespace
from llmendpoint_gateway.core.identity.key_objects import Key

MOST_KEYS = 100_000
"""Usual ones. A larger one takes the room of several, and one namespace takes half of the room at most: others have keys too."""
ROOM, EACH = 2000, 100
"""Bytes of grants in the room of one key, and what each text takes beside its characters."""
MOST_CANDIDATES = 8
"""LLMKeys with one id that are looked at, the oldest ones."""


class Reason(Enum):
    """Why a request without a valid key is refused. For metrics and logs; the caller does not learn it."""

    MISSING = "missing"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    DISABLED = "disabled"
    CONTESTED = "contested"
    """Namespaces have LLMKeys with this id that were made in the same second: nobody can tell which one is the copy."""


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
        self._by_id: dict[str, list[_Known]] = {}  # the oldest first
        self._left_out: set[str] = set()
        self._taken: Counter[str] = Counter()  # room by namespace
        self._all_taken = 0

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
        room = _room(key)
        if self._taken[key.namespace] + room > self._most // 2 or self._all_taken + room > self._most:
            if len(self._left_out) < self._most:
                self._left_out.add(name)
            return False
        known = _Known(key, _identity(key))
        self._known[name] = known
        self._take(key, room)
        insort(self._by_id.setdefault(key.id, []), known, key=_age)
        return True

    def drop(self, name: str) -> None:
        """The LLMKey `namespace/name` is gone."""
        self._left_out.discard(name)
        known = self._known.pop(name, None)
        if known is None:
            return
        self._take(known.key, -_room(known.key))
        same = self._by_id[known.key.id]
        del same[bisect_left(same, _age(known), key=_age)]
        if not same:
            del self._by_id[known.key.id]

    def _take(self, key: Key, room: int) -> None:
        self._all_taken += room
        self._taken[key.namespace] += room
        if not self._taken[key.namespace]:
            del self._taken[key.namespace]

    def judge(self, proof: Proof, now: float) -> Identity | Denied:
        """Of several LLMKeys with this hash the oldest decides, also if it lets nobody in."""
        candidates = self._by_id.get(proof.id, [])[:MOST_CANDIDATES]
        found: tuple[_Known, float] | None = None
        for known in candidates:
            for one in known.key.hashes:
                same = hmac.compare_digest(one.digest, proof.digest)
                if same and found is None and known.key.namespace == candidates[0].key.namespace:
                    found = known, one.expires
        if found is None:
            return Denied(Reason.UNKNOWN)
        if len(candidates) > 1 and _contested(candidates):
            return Denied(Reason.CONTESTED)
        known, expires = found
        if known.key.disabled:
            return Denied(Reason.DISABLED, known.identity.key)
        if now >= min(expires, known.key.expires):
            return Denied(Reason.EXPIRED, known.identity.key)
        return known.identity


def _room(key: Key) -> int:
    """How many usual keys it is as large as."""
    texts = (text for grant in key.grants for text in (*grant[:2], *chain.from_iterable(grant.labels)))
    return 1 + sum(len(text) + EACH for text in texts) // ROOM


def _age(known: _Known) -> tuple[str, str]:
    """The order among those with one id."""
    return known.key.created, known.identity.key


def _contested(candidates: list[_Known]) -> bool:
    """Whether another namespace has one that is as old as the oldest. If all that are looked at are as old, there may be others."""
    equal = [one.key for one in candidates if one.key.created == candidates[0].key.created]
    return len(equal) == MOST_CANDIDATES or any(one.namespace != equal[0].namespace for one in equal)


def _identity(key: Key) -> Identity:
    """Its numbers are others in each process, as that of an address is."""
    caller, tenant = (hash(of) & MASK or 1 for of in (("LLMKey", key.key), ("Namespace", key.namespace)))
    return Identity(key.key, key.namespace, by_namespace(key.grants), key.priority, caller, tenant)
