"""Which requests take their replica down with them: after two, the same request is not placed any more.

A request is known by its print, a hash of its body. All that a replica had in flight when it crashed are suspects; an
answer to the same request clears it. Time is the caller's, in seconds.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

CRASHES = 2
REMEMBERED_SECONDS = 300.0
SAME_SECONDS = 1.0
"""What breaks at one address in so short a time is one crash: requests that were in flight together."""
MOST_PRINTS = 4096


@dataclass(slots=True)
class _Crashes:
    at: dict[str, float] = field(default_factory=dict)  # when, by address of the last of them
    times: list[float] = field(default_factory=list)


class Poison:
    """By print. Holds suspects alone, the longest known go first."""

    def __init__(self) -> None:
        self._suspects: OrderedDict[str, _Crashes] = OrderedDict()

    def __len__(self) -> int:
        return len(self._suspects)

    def crashed(self, print_: str, address: str, now: float) -> bool:
        """It was in flight at a replica that went away; whether it is to be refused from now on."""
        crashes = self._suspects.setdefault(print_, _Crashes())
        last = crashes.at.get(address)
        crashes.at[address] = now
        if last is None or now - last > SAME_SECONDS:
            crashes.times = [*self._recent(crashes, now), now]
        while len(self._suspects) > MOST_PRINTS:
            self._suspects.popitem(last=False)
        return len(crashes.times) == CRASHES

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
    def _recent(crashes: _Crashes, now: float) -> list[float]:
        return [at for at in crashes.times if now - at < REMEMBERED_SECONDS]
