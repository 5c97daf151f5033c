"""Which endpoints each caller may use, and which of them a name means to it.

To a caller, the cluster has only the endpoints that it may use: a name means what it would mean if there were no others. So a bare
name never leads to another tenant's endpoint, and an answer tells nothing of those that the caller may not use.

What was found for a caller is kept until an endpoint changes in a way that concerns names or permissions.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterator

from llmendpoint_gateway.core.endpoint.departed import GRACE_SECONDS, MOST_NAMES
from llmendpoint_gateway.core.endpoint.names import Claims, Meant, split_adapter
from llmendpoint_gateway.core.endpoint.objects import Endpoint
from llmendpoint_gateway.core.endpoint.view import View
from llmendpoint_gateway.core.identity.grants import Identity, may_use

MOST_CALLERS = 512
MOST_NAMES_OF_ONE = 256
"""Names that are kept for one caller: with those that the cluster has, of 128 characters, at most 30 MiB for all callers."""


class _Found:
    """What was found for a caller. `names`: name -> endpoint, or None for one that the caller may not use."""

    __slots__ = ("generation", "names", "who")

    def __init__(self, who: Identity, generation: int) -> None:
        self.who, self.generation = who, generation
        self.names: dict[str, str | None] = {}


class Permits:
    """`generation`: a number that is new after each change that concerns names or permissions. Times are in seconds."""

    def __init__(self) -> None:
        self.generation = 0
        self._endpoints: dict[str, Endpoint] = {}
        self._in_namespace: dict[str, set[str]] = {}
        self._claims: Claims = {}
        self._gone: OrderedDict[str, tuple[Endpoint, float]] = OrderedDict()  # name -> (endpoint, until)
        self._found: OrderedDict[str, _Found] = OrderedDict()

    def follow(self, view: View, keys: Collection[str], now: float) -> None:
        """Take over a new view. `keys`: the endpoints that changed."""
        self._claims = view.claims
        changed = [self._change(key, view.endpoints.get(key), now) for key in keys]
        if any(changed):
            self.generation += 1

    def meaning(self, name: str, who: Identity, now: float) -> Meant | None:
        """The endpoint, and perhaps its adapter, that a name means to this caller. A recently deleted endpoint counts, so that a
        request for it may wait. None: the caller may use no endpoint of this name."""
        found = self._of(who)
        key = self._usable(name, found, now)
        if key is not None:
            return Meant(key)
        base, adapter = split_adapter(name, lambda text: self._usable(text, found, now) is not None)
        key = self._usable(base, found, now) if adapter else None
        return None if key is None else Meant(key, adapter)

    def permitted(self, key: str, who: Identity) -> bool:
        """Whether the caller may use this endpoint; a deleted one is not asked about, until it is back."""
        endpoint = self._endpoints.get(key)
        return endpoint is None or may_use(who, endpoint)

    def endpoint(self, key: str) -> Endpoint | None:
        """None for one that is deleted."""
        return self._endpoints.get(key)

    def endpoints(self, who: Identity) -> Iterator[Endpoint]:
        """All that the caller may use."""
        spaces = who.grants if who.key else self._in_namespace
        for namespace in spaces:
            for key in self._in_namespace.get(namespace, ()):
                if may_use(who, self._endpoints[key]):
                    yield self._endpoints[key]

    def _usable(self, name: str, found: _Found, now: float) -> str | None:
        if name in found.names:
            key = found.names[name]
        else:
            key = self._living(name, found.who)
            if name in self._endpoints or name in self._claims:  # whatever else callers send is not kept
                if len(found.names) >= MOST_NAMES_OF_ONE:
                    found.names.clear()
                found.names[name] = key
        if key is None and name in self._gone:
            endpoint, until = self._gone[name]
            if now < until and may_use(found.who, endpoint):
                return endpoint.key
        return key

    def _living(self, name: str, who: Identity) -> str | None:
        endpoint = self._endpoints.get(name)
        if endpoint is not None and may_use(who, endpoint):
            return name
        for _, key in self._claims.get(name, ()):
            if may_use(who, self._endpoints[key]):
                return key
        return None

    def _of(self, who: Identity) -> _Found:
        found = self._found.get(who.key)
        if found is None or found.who is not who or found.generation != self.generation:
            found = self._found[who.key] = _Found(who, self.generation)
            if len(self._found) > MOST_CALLERS:
                self._found.popitem(last=False)
        else:
            self._found.move_to_end(who.key)
        return found

    def _change(self, key: str, after: Endpoint | None, now: float) -> bool:
        """Returns whether names or permissions change."""
        before = self._endpoints.get(key)
        if after is None:
            if before is not None:
                self._leave(before, now)
            return before is not None
        self._endpoints[key] = after
        self._in_namespace.setdefault(after.namespace, set()).add(key)
        if key in self._gone:
            for name in (key, *self._gone[key][0].served_names):
                if name in self._gone and self._gone[name][0].key == key:
                    del self._gone[name]
        return before is None or _facts(before) != _facts(after)

    def _leave(self, endpoint: Endpoint, now: float) -> None:
        key = endpoint.key
        del self._endpoints[key]
        inside = self._in_namespace[endpoint.namespace]
        inside.discard(key)
        if not inside:
            del self._in_namespace[endpoint.namespace]
        for name in (key, *endpoint.served_names):
            self._gone[name] = (endpoint, now + GRACE_SECONDS)
            self._gone.move_to_end(name)
        while self._gone and (len(self._gone) > MOST_NAMES or next(iter(self._gone.values()))[1] <= now):
            self._gone.popitem(last=False)


def _facts(endpoint: Endpoint) -> tuple[object, ...]:
    return endpoint.created, endpoint.served_names, endpoint.adapters, endpoint.labels, endpoint.access
