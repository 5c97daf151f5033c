"""Lets requests in by their key, and says which endpoint a name means to the caller. It exists only where keys are looked at."""

from collections.abc import Callable, Mapping

from llmendpoint_gateway.core.endpoint.names import Meant
from llmendpoint_gateway.core.endpoint.permits import Permits
from llmendpoint_gateway.core.identity.authentication import Authentication, identify
from llmendpoint_gateway.core.identity.grants import Identity
from llmendpoint_gateway.core.identity.keys import Denied, Reason
from llmendpoint_gateway.core.request.refusals import Rejected, keys_unread, no_valid_key, not_permitted
from llmendpoint_gateway.serve.identity.known_keys import KnownKeys
from llmendpoint_gateway.serve.metrics import Metrics

FORBIDDEN = "forbidden"
NO_KEY, UNREAD = no_valid_key(), keys_unread()
NOT_PERMITTED = {with_key: not_permitted(with_key) for with_key in (False, True)}


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

    def judge(self, headers: Mapping[str, bytes], doubled: bool) -> tuple[Identity | Rejected, str]:
        """The caller, or why it is not let in; and the name of its LLMKey for the log."""
        found = identify(self.mode, headers, doubled, self.keys.table, self._wall_clock())
        if isinstance(found, Identity):
            return found, found.key
        if found.reason is Reason.UNKNOWN and not self.keys.synced:
            return UNREAD, ""
        return self._deny(found)

    def resolve(self, name: str, who: Identity, now: float) -> Meant | Rejected:
        """`now`: seconds, monotonic."""
        return self.permits.meaning(name, who, now) or self.forbid(who)

    def forbid(self, who: Identity) -> Rejected:
        self._metrics.refused(FORBIDDEN)
        return NOT_PERMITTED[bool(who.key)]

    def _deny(self, denied: Denied) -> tuple[Rejected, str]:
        self._metrics.refused(denied.reason.value)
        return NO_KEY, denied.key
