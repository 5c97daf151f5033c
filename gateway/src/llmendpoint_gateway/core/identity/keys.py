"""All LLMKeys, and the judgement of a key's text. One LLMKey changes at a time, at a cost that does not grow with their number.

The caller learns that its key is not valid, and never why. Texts are compared by their hash, in constant time. Times are seconds
since 1970.

A hash is bound to its namespace: a copy of an LLMKey in another one lets nobody in, and may not keep the original from being found.
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
MOST_NAMESPACES, MOST_OF_ONE = 64, 4
"""Namespaces with an id that are looked at, the ones with the oldest LLMKeys, and how many of each: many copies in one namespace push
nobody else's out. A namespace costs a request 1 us or 2."""


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
        self._of: dict[tuple[str, str], list[_Known]] = {}  # by id and namespace, the oldest first
        self._by_id: dict[str, list[_Known]] = {}  # the oldest of each namespace, the oldest first
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
        self._change(known, is_new=True)
        return True

    def drop(self, name: str) -> None:
        """The LLMKey `namespace/name` is gone."""
        self._left_out.discard(name)
        known = self._known.pop(name, None)
        if known is None:
            return
        self._take(known.key, -_room(known.key))
        self._change(known, is_new=False)

    def _change(self, known: _Known, *, is_new: bool) -> None:
        """Put it among those with its id, or take it from them."""
        of = id_, _ = known.key.id, known.key.namespace
        same, first = self._of.setdefault(of, []), self._by_id.setdefault(id_, [])
        oldest = same[:1]
        (_insert if is_new else _remove)(same, known)
        if oldest != same[:1]:
            for one in oldest:
                _remove(first, one)
            for one in same[:1]:
                _insert(first, one)
        if not same:
            del self._of[of]
        if not first:
            del self._by_id[id_]

    def _take(self, key: Key, room: int) -> None:
        self._all_taken += room
        self._taken[key.namespace] += room
        if not self._taken[key.namespace]:
            del self._taken[key.namespace]

    def judge(self, proof: Proof, now: float) -> Identity | Denied:
        """Of several LLMKeys with this key the oldest decides, also if it lets nobody in. Whoever made them had the key's text."""
        found: tuple[_Known, float] | None = None
        for oldest in self._by_id.get(proof.id, [])[:MOST_NAMESPACES]:
            namespace = oldest.key.namespace
            digest = proof.in_namespace(namespace)
            for known in self._of[proof.id, namespace][:MOST_OF_ONE]:
                for one in known.key.hashes:
                    same = hmac.compare_digest(one.digest, digest)
                    if same and (found is None or _age(known) < _age(found[0])):
                        found = known, one.expires
        if found is None:
            return Denied(Reason.UNKNOWN)
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


def _insert(into: list[_Known], known: _Known) -> None:
    insort(into, known, key=_age)


def _remove(of: list[_Known], known: _Known) -> None:
    del of[bisect_left(of, _age(known), key=_age)]


def _identity(key: Key) -> Identity:
    """Its numbers are others in each process, as that of an address is."""
    caller, tenant = (hash(of) & MASK or 1 for of in (("LLMKey", key.key), ("Namespace", key.namespace)))
    return Identity(key.key, key.namespace, by_namespace(key.grants), key.priority, caller, tenant)
