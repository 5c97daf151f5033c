"""Requests for a LoRA adapter of an endpoint. Only replicas that say that they have it get such a request."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from llmendpoint_gateway.core.endpoint.objects import Endpoint
from llmendpoint_gateway.core.placement.routing import Route, Target

Holds = Callable[[str, str], bool]
"""(address, adapter) -> whether the replica has the adapter."""


def holding(route: Route, adapter: str, holds: Holds) -> Route:
    """The route with those replicas only that have the adapter."""
    standby = _part((route.standby,), adapter, holds) if route.standby else ()
    return replace(
        route,
        targets=_part(route.targets, adapter, holds),
        others=_part(route.others, adapter, holds),
        standby=standby[0] if standby else None,
    )


def _part(targets: tuple[Target, ...], adapter: str, holds: Holds) -> tuple[Target, ...]:
    found = []
    for target in targets:
        addresses = tuple(address for address in target.addresses if holds(address, adapter))
        if addresses:
            found.append(replace(target, addresses=addresses))
    return tuple(found)


class AdapterCounts:
    """How many requests each adapter of a spec got. Those that leave the spec are forgotten, so that there are never more
    than the specs name."""

    def __init__(self) -> None:
        self._of: dict[str, Counter[str]] = {}  # endpoint -> adapter -> requests

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """(endpoint, adapter) -> requests."""
        return {(key, adapter): n for key, counts in self._of.items() for adapter, n in counts.items()}

    def count(self, endpoint: str, adapter: str) -> None:
        self._of.setdefault(endpoint, Counter())[adapter] += 1

    def keep(self, endpoints: Mapping[str, Endpoint], changed: Iterable[str]) -> None:
        """Forget what the specs of the changed endpoints do not name any more."""
        for key in changed:
            if counts := self._of.pop(key, None):
                endpoint = endpoints.get(key)
                named = endpoint.adapters if endpoint else frozenset[str]()
                if kept := Counter({adapter: n for adapter, n in counts.items() if adapter in named}):
                    self._of[key] = kept
