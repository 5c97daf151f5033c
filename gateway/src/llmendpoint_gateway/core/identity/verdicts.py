"""What the API server said of tokens, kept for a while: not every request asks it, and it may be unreachable for some
time."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

MOST = 64  # tokens; an operator has one, and a new one each hour
FRESH_SECONDS = 60.0
MOST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Verdict:
    """`allowed` is valid until `fresh_until`, or until `usable_until` if the API server cannot be asked again."""

    allowed: bool
    fresh_until: float
    usable_until: float


class Verdicts:
    """Verdicts by the hash of the token. Times are in seconds, monotonic."""

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, token: str, now: float, asked_in_vain: bool = False) -> bool | None:
        """The verdict; None: unknown, ask the API server. `asked_in_vain`: the API server does not answer."""
        verdict = self._known.get(_hash(token))
        if verdict is None or now >= (verdict.usable_until if asked_in_vain else verdict.fresh_until):
            return None
        return verdict.allowed

    def keep(self, token: str, allowed: bool, now: float, expires_in: float) -> None:
        """`expires_in`: the token's remaining lifetime, in seconds. A refusal is kept for FRESH_SECONDS only."""
        left = min(max(expires_in, 0.0), MOST_SECONDS) if allowed else FRESH_SECONDS
        key = _hash(token)
        self._known[key] = Verdict(allowed, now + min(FRESH_SECONDS, left), now + left)
        self._known.move_to_end(key)
        while len(self._known) > MOST:
            # A flood of bad tokens must not evict a good one.
            refused = next((key for key, verdict in self._known.items() if not verdict.allowed), None)
            self._known.pop(refused) if refused is not None else self._known.popitem(last=False)


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
