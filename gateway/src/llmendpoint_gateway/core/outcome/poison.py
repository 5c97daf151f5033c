"""Which requests crash their replica. After two crashes the same request is refused.

A request is identified by its endpoint and its print, a hash of its body: a body that crashes one endpoint's engines
may be harmless for another's. All requests that a replica had in flight when it crashed are suspects. An answer to the
same request clears it. The time is an argument, in seconds.
"""

from collections import OrderedDict

CRASHES = 2
REMEMBERED_SECONDS = 300.0
SAME_SECONDS = 2.0
"""Crashes within this time count as one: they come from copies of a request that were in flight together, before any
could be answered. Only the retry of a copy, at another replica, is a crash of its own."""
MOST_PRINTS = 4096
MOST_OF_ONE = 1024
"""Suspects of one endpoint, so that an endpoint that crashes under many requests does not evict another's. A replica
may have some hundred requests in flight when it crashes; the guilty one must be among those that are remembered."""
MOST_CRASHES = 8
"""Remembered crashes of one request."""

_Crash = tuple[float, str]
"""When, and at which address."""


class Poison:
    """Holds suspects only. If one endpoint has too many, its oldest is dropped. If there are too many in all, the
    oldest of the endpoint with the most is dropped."""

    def __init__(self) -> None:
        self._suspects: dict[str, OrderedDict[int, list[_Crash]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def crashed(self, endpoint: str, print_: int, address: str, now: float, *, again: bool) -> bool:
        """The request was in flight at a replica that went away. Returns whether it is refused from now on. `again`:
        this was a retry, after an attempt at another replica."""
        crashes = self._recent(self._crashes(endpoint, print_), now)
        near = [where for at, where in crashes if now - at <= SAME_SECONDS]
        counts = not near or (again and address not in near)
        if counts:
            crashes.append((now, address))
        self._keep(endpoint, print_, crashes[-MOST_CRASHES:])
        return counts and len(crashes) == CRASHES

    def answered(self, endpoint: str, print_: int) -> None:
        """A replica answered the request and survived it."""
        if self.suspected(endpoint, print_):
            self._drop(endpoint, print_)

    def suspected(self, endpoint: str, print_: int) -> bool:
        return bool(self._crashes(endpoint, print_))

    def refused(self, endpoint: str, print_: int, now: float) -> bool:
        crashes = self._crashes(endpoint, print_)
        if not crashes:
            return False
        recent = self._recent(crashes, now)
        if not recent:
            self._drop(endpoint, print_)
        return len(recent) >= CRASHES

    def forget(self, endpoint: str) -> None:
        """Forget a deleted endpoint."""
        self._count -= len(self._suspects.pop(endpoint, ()))

    def _crashes(self, endpoint: str, print_: int) -> list[_Crash]:
        suspects = self._suspects.get(endpoint)
        return [] if suspects is None else suspects.get(print_, [])

    def _keep(self, endpoint: str, print_: int, crashes: list[_Crash]) -> None:
        suspects = self._suspects.setdefault(endpoint, OrderedDict())
        self._count += print_ not in suspects
        suspects[print_] = crashes
        if len(suspects) > MOST_OF_ONE:
            self._drop(endpoint, next(iter(suspects)))
        if self._count > MOST_PRINTS:
            most = max(self._suspects, key=lambda key: len(self._suspects[key]))
            self._drop(most, next(iter(self._suspects[most])))

    def _drop(self, endpoint: str, print_: int) -> None:
        suspects = self._suspects[endpoint]
        del suspects[print_]
        self._count -= 1
        if not suspects:
            del self._suspects[endpoint]

    @staticmethod
    def _recent(crashes: list[_Crash], now: float) -> list[_Crash]:
        return [(at, where) for at, where in crashes if now - at < REMEMBERED_SECONDS]
