"""Lets requests in by their key, and says which endpoint a name means to the caller. It exists only where keys are looked at."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from llmendpoint_gateway.core.endpoint.names import Meant
from llmendpoint_gateway.core.endpoint.permits import Permits
from llmendpoint_gateway.core.identity.authentication import Authentication, identify
from llmendpoint_gateway.core.identity.credentials import Proof
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.core.identity.keys import Denied
from llmendpoint_gateway.core.request.refusals import Rejected, keys_unread, no_valid_key, not_permitted
from llmendpoint_gateway.core.request.request import Head
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.serve.metrics import Metrics

FORBIDDEN = "forbidden"
NO_KEY, UNREAD = no_valid_key(), keys_unread()
NOT_PERMITTED = {with_key: not_permitted(with_key) for with_key in (False, True)}


class Judged(NamedTuple):
    """The caller, or why it is not let in. `key`: the name of its LLMKey for the log. `proof`: for `judge_again`."""

    who: Identity | Rejected
    key: str = ""
    proof: Proof | None = None


class Gate:
    """`wall_clock`: seconds since 1970, because keys expire at a date."""

    def __init__(
        self,
        mode: Authentication,
        keys: KnownKeys,
        permits: Permits,
        metrics: Metrics,
        wall_clock: Callable[[], float],
    ) -> None:
        self.mode, self.keys, self.permits = mode, keys, permits
        self._metrics, self._wall_clock = metrics, wall_clock

    def judge(self, headers: Mapping[str, bytes], doubled: bool) -> Judged:
        found, proof = identify(self.mode, headers, doubled, self.keys.table, self._wall_clock())
        if proof is not None and not self.keys.synced:
            return Judged(UNREAD)  # not even by a key that is known: an older one of its namespace may follow
        if isinstance(found, Identity):
            return Judged(found, found.key, proof)
        return Judged(self._deny(found), found.key)

    def judge_again(self, head: Head, meant: str | Meant) -> Rejected | None:
        """The request has waited, an hour perhaps. None: its caller may still use the endpoint."""
        who = head.who
        if head.proof is not None:
            found = self.keys.table.judge(head.proof, self._wall_clock())
            if isinstance(found, Denied):
                return self._deny(found)
            who = found
        if (
            isinstance(who, Identity)
            and isinstance(meant, Meant)
            and not self.permits.permitted(meant.key, who)
        ):
            return self.forbid(who)
        return None

    def resolve(self, name: str | Meant, who: Identity, now: float) -> Meant | Rejected:
        """`now`: seconds, monotonic."""
        if isinstance(name, Meant):
            return name if self.permits.permitted(name.key, who) else self.forbid(who)
        return self.permits.meaning(name, who, now) or self.forbid(who)

    def forbid(self, who: Identity) -> Rejected:
        self._metrics.refused(FORBIDDEN)
        return NOT_PERMITTED[bool(who.key)]

    def _deny(self, denied: Denied) -> Rejected:
        self._metrics.refused(denied.reason.value)
        return NO_KEY
