"""Which requests take their replica down with them: after two, the same request is not placed any more.

A request is known by its print, a hash of its body. All that a replica had in flight when it crashed are suspects; an
answer to the same request clears it. Time is the caller's, in seconds.
"""

from collections import OrderedDict

CRASHES = 2
REMEMBERED_SECONDS = 300.0
SAME_SECONDS = 2.0
"""What breaks in so short a time is one crash: copies of a request that were in flight together, and that nobody had the
time to answer since. Only the retry of one of them, at another replica, is a crash of its own."""
MOST_PRINTS = 4096


class Poison:
    """By print. Holds suspects alone, the longest known go first."""

    def __init__(self) -> None:
        self._suspects: OrderedDict[str, list[tuple[float, str]]] = OrderedDict()  # when and where

    def __len__(self) -> int:
        return len(self._suspects)

    def crashed(self, print_: str, address: str, now: float, *, again: bool) -> bool:
        """It was in flight at a replica that went away; whether it is to be refused from now on. `again`: this was a
        retry, after it had been at another."""
        crashes = self._suspects[print_] = self._recent(self._suspects.get(print_, []), now)
        near = [where for at, where in crashes if now - at <= SAME_SECONDS]
        if near and (not again or address in near):
            return False
        crashes.append((now, address))
        while len(self._suspects) > MOST_PRINTS:
            self._suspects.popitem(last=False)
        return len(crashes) == CRASHES

    def answered(self, print_: str) -> None:
        """A replica lived through it."""
        self._suspects.pop(print_, None)

    def suspected(self, print_: str) -> bool:
        return print_ in self._suspects

    def refused(self, print_: str, now: float) -> bool:
        crashes = self._suspects.get(print_)
        if crashes is None:
            return False
        recent = self._recent(crashes, now)
        if not recent:
            del self._suspects[print_]
        return len(recent) >= CRASHES

    @staticmethod
    def _recent(crashes: list[tuple[float, str]], now: float) -> list[tuple[float, str]]:
        return [(at, where) for at, where in crashes if now - at < REMEMBERED_SECONDS]
