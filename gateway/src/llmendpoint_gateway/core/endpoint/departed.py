"""Names of recently deleted endpoints. An endpoint that is applied again within seconds loses no request.

The number of names is bounded; the oldest are dropped first. The time is an argument, in seconds.
"""

from collections import OrderedDict
from collections.abc import Mapping

GRACE_SECONDS = 5.0
"""For this time a request for such a name waits. After it, the request gets 404 `model_not_found`."""
MOST_NAMES = 4096


class Departed:
    def __init__(self) -> None:
        self._names: OrderedDict[str, tuple[str, float]] = OrderedDict()  # name -> (endpoint, until)

    def __len__(self) -> int:
        return len(self._names)

    def note(self, before: Mapping[str, str], after: Mapping[str, str], now: float) -> None:
        """Record the names that belong to an endpoint in `before` and to none in `after`."""
        for name in before.keys() - after.keys():
            self._names[name] = (before[name], now + GRACE_SECONDS)
            self._names.move_to_end(name)
        for name in [name for name, (_, until) in self._names.items() if name in after or until <= now]:
            del self._names[name]
        while len(self._names) > MOST_NAMES:
            self._names.popitem(last=False)

    def endpoint(self, name: str, now: float) -> str | None:
        """The endpoint that the name belonged to until recently; None for any other name."""
        endpoint, until = self._names.get(name, ("", 0.0))
        return endpoint if now < until else None
