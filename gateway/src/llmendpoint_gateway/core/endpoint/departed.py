"""Names of endpoints that were deleted a moment ago: one that is applied again within seconds is to lose no request.

Holds a bounded number of names, the oldest go first. Time is the caller's, in seconds.
"""

from collections import OrderedDict
from collections.abc import Mapping

GRACE_SECONDS = 5.0
"""For so long a request for such a name waits rather than being told that there is no such model."""
MOST_NAMES = 4096


class Departed:
    def __init__(self) -> None:
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()  # name -> (endpoint, until)

    def __len__(self) -> int:
        return len(self._names)

    def note(self, before: Mapping[str, str], after: Mapping[str, str], now: float) -> None:
        """Names that meant an endpoint before, and mean none now."""
        for name in before.keys() - after.keys():
            self._names[name] = (before[name], now + GRACE_SECONDS)
            self._names.move_to_end(name)
        for name in [name for name, (_, until) in self._names.items() if name in after or until <= now]:
            del self._names[name]
        while len(self._names) > MOST_NAMES:
            self._names.popitem(last=False)

    def endpoint(self, name: str, now: float) -> str | None:
        """Whom the name meant, where that was a moment ago."""
        endpoint, until = self._names.get(name, ("", 0.0))
        return endpoint if now < until else None
