"""One Envoy's side of an aggregated, incremental xDS stream: what it asked for, was sent, and acknowledged.

Only what changed is sent, so the cost of a change or an acknowledgement does not depend on how much Envoy holds. This
module handles no bytes. A resource is its name and a version, which is any value that changes with the resource.
serve/envoy turns the responses into protobuf.

A stream begins when there is a state. Until then Envoy gets no answer and keeps what it has.
"""

from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
LISTENER = "type.googleapis.com/envoy.config.listener.v3.Listener"
ROUTES = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration"
TYPES = (CLUSTER, ENDPOINTS, LISTENER, ROUTES)  # in the order they are sent: make before break
EVERY = (CLUSTER, LISTENER)
"""Envoy takes all that there are of these. Of the others it asks for those that these name."""

Versions = Mapping[str, Mapping[str, Hashable]]
"""Type URL -> resource name -> version, of all that Envoy is to hold. It changes in place.

A cluster that changes waits for endpoints again, and Envoy does not ask for them. So a cluster's new version is a new
version of its endpoints too: a stream that breaks in between leaves the next one no other sign.
"""
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Request:
    """A DeltaDiscoveryRequest. `held`: on the first of a type, the versions of what Envoy has from an earlier stream.
    `nonce`: of the response that it answers, or empty; `error` is set on a NACK."""

    type_url: str
    subscribe: frozenset[str] = frozenset()
    unsubscribe: frozenset[str] = frozenset()
    held: Mapping[str, Hashable] = field(default_factory=dict)
    nonce: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A DeltaDiscoveryResponse to send: these resources as they are now, without those that are `removed`."""

    type_url: str
    nonce: str
    names: tuple[str, ...]
    removed: tuple[str, ...] = ()


class _Kind:
    """The resources of one type. Envoy takes `every` one, or those that it `asked` for.

    `sent`: what Envoy will have when it has read all. `differs`: the names of which it has not acknowledged what is
    wanted. `told` and `answered`: Envoy was sent a state, and has accepted one, if only an empty one.
    """

    def __init__(self, wanted: Mapping[str, Hashable], *, every: bool) -> None:
        self.wanted, self.every = wanted, every
        self.asked: set[str] = set()
        self.sent: dict[str, Hashable] = {}
        self.acknowledged: dict[str, Hashable] = {}
        self.refused: dict[str, str] = {}
        self.differs = set(wanted)
        self.opened = self.told = self.answered = False

    def note(self, name: str) -> None:
        """What is wanted or acknowledged of this name may have changed."""
        wanted = self.wanted.get(name, _NOTHING)
        # Endpoints and routes that nobody wants are dropped with their cluster or listener.
        unwanted = wanted is _NOTHING and not self.every
        if unwanted or self.acknowledged.get(name, _NOTHING) == wanted:
            self.differs.discard(name)
        else:
            self.differs.add(name)

    def hold(self, name: str, version: Hashable) -> None:
        """Envoy has it from an earlier stream."""
        self.sent[name] = self.acknowledged[name] = version
        self.note(name)

    def news(self, names: Iterable[str]) -> tuple[dict[str, Hashable], tuple[str, ...]]:
        """Of these names: what Envoy is to get, and what it is to drop. From now on it counts as sent."""
        news: dict[str, Hashable] = {}
        removed: list[str] = []
        for name in names:
            version = self.wanted.get(name, _NOTHING)
            if version is _NOTHING:
                if self.every and self.sent.pop(name, _NOTHING) is not _NOTHING:
                    removed.append(name)
            elif (self.every or name in self.asked) and self.sent.get(name, _NOTHING) != version:
                news[name] = self.sent[name] = self.wanted[name]
        return news, tuple(removed)

    def accept(self, versions: Mapping[str, Hashable], removed: Iterable[str]) -> None:
        self.answered = True
        self.acknowledged.update(versions)
        for name in removed:
            self.acknowledged.pop(name, None)
        for name in (*versions, *removed):
            self.refused.pop(name, None)
            self.note(name)


@dataclass(frozen=True, slots=True)
class _Sent:
    """A response that Envoy has not answered yet. `versions` loses what was dropped since; `alone`: it had one resource."""

    versions: dict[str, Hashable]
    removed: tuple[str, ...]
    alone: bool


class Subscription:
    """The state of one stream. `versions` is shared: whoever changes it calls `publish` with the names that changed."""

    def __init__(self, versions: Versions) -> None:
        self._kinds = {t: _Kind(versions.get(t, {}), every=t in EVERY) for t in TYPES}
        self._pending: dict[str, dict[str, _Sent]] = {t: {} for t in TYPES}  # by nonce
        self._nonces = 0
        self._changed: set[str] = set()
        self._renewed: set[str] = set()  # clusters sent before Envoy said which endpoints it has

    @property
    def nack(self) -> str | None:
        """What Envoy said of a resource that it refused and has not taken or dropped since."""
        return next((error for kind in self._kinds.values() for error in kind.refused.values()), None)

    def acknowledged(self, type_url: str) -> Mapping[str, Hashable]:
        return self._kinds[type_url].acknowledged

    def take_changed(self) -> set[str]:
        """The clusters whose endpoints Envoy has acknowledged or dropped since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def holds(self) -> bool:
        """Whether Envoy has acknowledged exactly the wanted clusters, and the wanted endpoints for each."""
        return self._kinds[CLUSTER].answered and not any(kind.differs for kind in self._kinds.values())

    def decided(self) -> bool:
        """Whether Envoy has accepted or refused each cluster and its endpoints, and has the listeners and routes. What it
        refuses is waited for no longer: the others do not depend on it."""
        clusters, endpoints = self._kinds[CLUSTER], self._kinds[ENDPOINTS]
        refused = clusters.refused.keys() | endpoints.refused.keys()
        return (
            clusters.answered
            and not any(self._pending.values())  # what was refused together is sent again one by one
            and clusters.differs <= refused
            and endpoints.differs <= refused
            and not any(self._kinds[t].differs for t in (LISTENER, ROUTES))
        )

    def publish(self, changed: Collection[str]) -> list[Response]:
        """`changed`: names of the resources that came, changed or went."""
        for kind in self._kinds.values():
            for name in changed:
                kind.note(name)
        return [response for t in TYPES for response in self._push(t, changed)]

    def receive(self, request: Request) -> list[Response]:
        """Process a subscription, an ACK or a NACK. A request of an unknown type is ignored."""
        kind = self._kinds.get(request.type_url)
        if kind is None:
            return []
        again = self._settle(kind, request) if request.nonce else []
        names = self._open(kind, request) if not kind.opened else set[str]()
        if not kind.every:
            self._drop(request.type_url, request.unsubscribe)
            # What was sent before this request may have gone to a cluster that Envoy has dropped since.
            self._drop(request.type_url, [name for name in request.subscribe if name not in names])
            kind.asked |= request.subscribe
            names = set(request.subscribe)
        return [*again, *self._push(request.type_url, names)]

    def _open(self, kind: _Kind, request: Request) -> set[str]:
        """The first request of a type. Returns the names that it may bring news of."""
        kind.opened = True
        held = request.held
        if not kind.every:
            held = {n: v for n, v in held.items() if n in request.subscribe and n in kind.wanted}
            self._note_changed(request.type_url, held)
        for name, version in held.items():
            kind.hold(name, version)
        if not kind.every:
            if request.type_url == ENDPOINTS:
                self._renew(self._renewed)
            return set(held)
        kind.told = kind.answered = bool(held)
        return {*held, *kind.wanted}

    def _settle(self, kind: _Kind, request: Request) -> list[Response]:
        sent = self._pending[request.type_url].pop(request.nonce, None)
        if sent is None:
            return []
        if request.error is None:
            kind.accept(sent.versions, sent.removed)
            self._note_changed(request.type_url, sent.versions)
            return []
        kind.refused.update(dict.fromkeys((*sent.versions, *sent.removed), request.error))
        if sent.alone:
            return []
        # Envoy refuses a response as a whole. One by one, only the bad resource is refused.
        newest = {n: v for n, v in sent.versions.items() if kind.sent.get(n, _NOTHING) == v}
        gone = [name for name in sent.removed if name not in kind.sent]
        return [
            *(self._respond(request.type_url, {name: version}) for name, version in newest.items()),
            *(self._respond(request.type_url, {}, (name,)) for name in gone),
        ]

    def _note_changed(self, type_url: str, names: Iterable[str]) -> None:
        if type_url == ENDPOINTS:
            self._changed.update(names)

    def _drop(self, type_url: str, names: Iterable[str]) -> None:
        """Envoy does not have these endpoints or routes any more, or is about to drop them."""
        kind = self._kinds[type_url]
        for name in names:
            kind.asked.discard(name)
            kind.refused.pop(name, None)
            if kind.sent.pop(name, _NOTHING) is not _NOTHING:
                for sent in self._pending[type_url].values():
                    sent.versions.pop(name, None)
            if kind.acknowledged.pop(name, _NOTHING) is not _NOTHING:
                self._note_changed(type_url, [name])
            kind.note(name)

    def _push(self, type_url: str, names: Iterable[str]) -> list[Response]:
        kind = self._kinds[type_url]
        if not kind.opened:
            return []
        news, removed = kind.news(names)
        for name in removed:
            kind.refused.pop(name, None)
        if type_url == CLUSTER:
            self._drop(ENDPOINTS, removed)
            self._renew(news)
        # Envoy listens once it has an answer, so an empty state is sent too, once.
        first = kind.every and not kind.told
        sent = [self._respond(type_url, news, removed)] if news or removed or first else []
        return [*sent, *self._push(ENDPOINTS, news)] if type_url == CLUSTER else sent

    def _renew(self, names: Collection[str]) -> None:
        """These clusters are sent, and wait for endpoints even if they had the same before."""
        endpoints = self._kinds[ENDPOINTS]
        for name in names:
            endpoints.sent.pop(name, None)
        if not endpoints.opened:
            self._renewed.update(names)

    def _respond(
        self, type_url: str, versions: dict[str, Hashable], removed: tuple[str, ...] = ()
    ) -> Response:
        self._nonces += 1
        nonce = str(self._nonces)
        self._kinds[type_url].told = True
        self._pending[type_url][nonce] = _Sent(dict(versions), removed, len(versions) + len(removed) <= 1)
        return Response(type_url, nonce, tuple(versions), removed)
