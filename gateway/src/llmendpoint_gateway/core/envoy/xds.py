"""One Envoy's side of an aggregated, state-of-the-world xDS stream: what it asked for, was sent, and acknowledged.

This module handles no bytes. A resource is its name and a version, which is any value that changes with the resource.
serve/envoy turns the responses into protobuf. Only clusters and their endpoints are dynamic; the listener and its
routes are static.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass

CLUSTER = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
ENDPOINTS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
TYPES = (CLUSTER, ENDPOINTS)  # in the order they are sent: make before break

Versions = Mapping[str, Mapping[str, Hashable]]
"""Type URL -> resource name -> version."""


@dataclass(frozen=True, slots=True)
class Request:
    """A DiscoveryRequest. `nonce` is empty on the first of its type; `error` is set on a NACK."""

    type_url: str
    names: frozenset[str] = frozenset()
    nonce: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Response:
    """A DiscoveryResponse to send. For clusters it has all of them, for endpoints only those that changed."""

    type_url: str
    nonce: str
    names: tuple[str, ...]


class Subscription:
    """The state of one stream. It answers nothing before the first `publish`, so Envoy keeps what it has."""

    def __init__(self) -> None:
        self._asked: dict[str, frozenset[str]] = {}
        self._sent: dict[str, dict[str, Hashable]] = {t: {} for t in TYPES}
        self._acknowledged: dict[str, dict[str, Hashable]] = {t: {} for t in TYPES}
        self._pending: dict[str, dict[str, Hashable]] = {}
        self._nacks: dict[str, str] = {}
        self._versions: Versions | None = None
        self._nonces = 0
        self._told = self._took_clusters = False
        self._changed: set[str] = set()

    @property
    def nack(self) -> str | None:
        """The message of the last NACK that no later ACK of its type has cleared."""
        return next(iter(self._nacks.values()), None)

    def acknowledged(self, type_url: str) -> Mapping[str, Hashable]:
        return self._acknowledged[type_url]

    def take_changed(self) -> set[str]:
        """The clusters whose endpoints Envoy has acknowledged or dropped since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def holds(self, versions: Versions) -> bool:
        """Whether Envoy has acknowledged exactly these clusters, and these endpoints for each."""
        endpoints = self._acknowledged[ENDPOINTS]
        return (
            self._took_clusters
            and self._acknowledged[CLUSTER] == dict(versions[CLUSTER])
            and all(endpoints.get(name) == version for name, version in versions[ENDPOINTS].items())
        )

    def publish(self, versions: Versions) -> list[Response]:
        self._versions = versions
        return [response for t in TYPES if t in self._asked for response in self._push(t)]

    def receive(self, request: Request) -> list[Response]:
        """Process an ACK, a NACK or a change of names. A request of an unknown type is ignored."""
        kind = request.type_url
        if kind not in TYPES:
            return []
        if request.nonce:
            self._settle(request)
        if kind == ENDPOINTS:
            # Each request has all names that Envoy wants now, whichever response it answers.
            self._forget_endpoints((set(self._sent[kind]) | set(self._acknowledged[kind])) - request.names)
        self._asked[kind] = request.names
        return self._push(kind)

    def _settle(self, request: Request) -> None:
        kind, versions = request.type_url, self._pending.pop(request.nonce, None)
        if versions is None:
            return
        if request.error is not None:
            self._nacks[kind] = request.error
            return
        self._nacks.pop(kind, None)
        if kind == CLUSTER:
            self._acknowledged[kind] = dict(versions)
            self._took_clusters = True
            self._forget_endpoints(set(self._acknowledged[ENDPOINTS]) - set(versions))
        else:
            self._acknowledged[kind].update(versions)
            self._changed.update(versions)

    def _forget_endpoints(self, names: Collection[str]) -> None:
        for name in names:
            self._sent[ENDPOINTS].pop(name, None)
            if self._acknowledged[ENDPOINTS].pop(name, None) is not None:
                self._changed.add(name)

    def _push(self, kind: str) -> list[Response]:
        if self._versions is None:
            return []
        return self._push_clusters() if kind == CLUSTER else self._push_endpoints()

    def _push_clusters(self) -> list[Response]:
        assert self._versions is not None
        want, sent = dict(self._versions[CLUSTER]), self._sent[CLUSTER]
        if want == sent and self._told:
            return []
        # A new or changed cluster warms up until its endpoints are sent again, even if they did not change.
        for name in [name for name, version in want.items() if sent.get(name) != version]:
            self._sent[ENDPOINTS].pop(name, None)
        self._forget_endpoints(set(want) - set(sent))
        self._sent[CLUSTER], self._told = want, True
        return [self._respond(CLUSTER, want), *(self._push_endpoints() if ENDPOINTS in self._asked else ())]

    def _push_endpoints(self) -> list[Response]:
        assert self._versions is not None
        sent, asked = self._sent[ENDPOINTS], self._asked[ENDPOINTS]
        changed = {
            name: version
            for name, version in self._versions[ENDPOINTS].items()
            if name in asked and (name not in sent or sent[name] != version)
        }
        if not changed:
            return []
        sent.update(changed)
        return [self._respond(ENDPOINTS, changed)]

    def _respond(self, kind: str, versions: dict[str, Hashable]) -> Response:
        self._nonces += 1
        nonce = str(self._nonces)
        self._pending[nonce] = versions
        return Response(kind, nonce, tuple(versions))
