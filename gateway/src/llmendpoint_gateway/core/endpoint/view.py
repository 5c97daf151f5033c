"""What the gateway knows of the cluster: a store of watched objects, and the view that everything else is made from.

An endpoint's part of the view is made from its own objects only. So a change rebuilds one part, and the parts of all
other endpoints stay as they are.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from llmendpoint_gateway.core.endpoint.names import Claims, Meant, change_claims, change_names
from llmendpoint_gateway.core.endpoint.objects import Endpoint, Replica, Slice
from llmendpoint_gateway.core.endpoint.shared_map import GONE, SharedMap, with_changes


class Kind(Enum):
    ENDPOINT = "LLMEndpoint"
    SLICE = "EndpointSlice"


Item = Endpoint | Slice


@dataclass(frozen=True, slots=True)
class Part:
    """One endpoint: its object (None after a delete), and its replicas by revision. Revisions and replicas are sorted."""

    endpoint: Endpoint | None = None
    revisions: Mapping[str, tuple[Replica, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether the endpoint has an object or replicas."""
        return self.endpoint is not None or bool(self.revisions)


NOTHING = Part()


class Store:
    """Watched objects by kind and `namespace/name`. `synced`: a full list of each kind was read."""

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[str, Item]] = {}
        self._slices_of: dict[str, dict[str, Slice]] = {}  # endpoint -> slice key -> slice
        self._touched: set[str] = set()

    @property
    def synced(self) -> bool:
        return len(self._objects) == len(Kind)

    def relisted(self, kind: Kind, items: Mapping[str, Item]) -> None:
        """Apply a full list. Objects that it lacks are gone, so this repairs a missed delete."""
        for key in self._objects.setdefault(kind, {}).keys() - items.keys():
            self.deleted(kind, key)
        for key, item in items.items():
            self.applied(kind, key, item)

    def applied(self, kind: Kind, key: str, item: Item) -> None:
        objects = self._objects.setdefault(kind, {})
        before = objects.get(key)
        if before == item:
            return
        objects[key] = item
        self._forget(key, before)
        if isinstance(item, Slice):
            self._slices_of.setdefault(item.endpoint, {})[key] = item
        self._touched.add(_endpoint_of(item))

    def deleted(self, kind: Kind, key: str) -> None:
        self._forget(key, self._objects.get(kind, {}).pop(key, None))

    def take_touched(self) -> set[str]:
        """The endpoints that changed since the last call."""
        touched, self._touched = self._touched, set()
        return touched

    def part(self, endpoint: str) -> Part:
        found = self._objects.get(Kind.ENDPOINT, {}).get(endpoint)
        grouped: dict[str, list[Replica]] = {}
        for _, item in sorted(self._slices_of.get(endpoint, {}).items()):
            grouped.setdefault(item.revision, []).extend(item.replicas)
        revisions = {revision: _by_pod(members) for revision, members in sorted(grouped.items())}
        return Part(found if isinstance(found, Endpoint) else None, revisions)

    def _forget(self, key: str, item: Item | None) -> None:
        if item is None:
            return
        self._touched.add(_endpoint_of(item))
        if isinstance(item, Slice):
            slices = self._slices_of[item.endpoint]
            del slices[key]
            if not slices:
                del self._slices_of[item.endpoint]


def _endpoint_of(item: Item) -> str:
    return item.key if isinstance(item, Endpoint) else item.endpoint


@dataclass(frozen=True, slots=True)
class View:
    """Parts and endpoints by key. A part without an endpoint belongs to a deleted one.

    `names`: model name -> endpoint key; the same object until an endpoint comes, goes, claims other names or has other
    adapters. `claims`:
    they decide the bare names. `paths`: all paths that runtimes of endpoints declare.
    """

    parts: Mapping[str, Part] = field(default_factory=SharedMap)
    endpoints: Mapping[str, Endpoint] = field(default_factory=SharedMap)
    claims: Claims = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    paths: frozenset[str] = frozenset()

    def part(self, key: str) -> Part:
        return self.parts.get(key, NOTHING)

    def takes(self, name: str, declared: str) -> bool:
        """Whether the endpoint of this name accepts a declared path. An unknown endpoint accepts any."""
        key = self.names.get(name) or self.names.get(name.rpartition(":")[0], "")
        endpoint = self.endpoints.get(key)
        return endpoint is None or declared in endpoint.paths

    def with_adapter(self, key: str, model: str) -> str | Meant:
        """The name of the endpoint that a path names, or the adapter of it that the body's `model` means. The engine judges
        the rest of that name. It is not put together as a name: another endpoint may claim `key:adapter` as its own."""
        endpoint = self.endpoints.get(key)
        if endpoint is None or not endpoint.adapters or not model:
            return key
        own = (key, *endpoint.served_names)
        base, _, adapter = ("", "", model) if model in endpoint.adapters else model.rpartition(":")
        wanted = adapter in endpoint.adapters and base in ("", *own) and model not in own
        return Meant(key, adapter) if wanted else key


def change_view(view: View, changed: Mapping[str, Part]) -> View:
    """The view with these parts in place of its own parts of the same endpoints."""
    parts = with_changes(view.parts, {key: part or GONE for key, part in changed.items()})
    before = [view.endpoints[key] for key in changed if key in view.endpoints]
    after = [part.endpoint for part in changed.values() if part.endpoint is not None]
    endpoints = view.endpoints
    if before != after:
        news = {key: GONE if part.endpoint is None else part.endpoint for key, part in changed.items()}
        endpoints = with_changes(endpoints, news)
    claims, names, paths = view.claims, view.names, view.paths
    if {(e.key, e.created, e.served_names, e.adapters) for e in before} != {
        (e.key, e.created, e.served_names, e.adapters) for e in after
    }:
        claims = change_claims(claims, before, after)
        names = change_names(names, claims, endpoints, [*before, *after])
    if [e.paths for e in before] != [e.paths for e in after]:
        paths = frozenset(path for endpoint in endpoints.values() for path in endpoint.paths)
    return View(parts, endpoints, claims, names, paths)


def _by_pod(replicas: Iterable[Replica]) -> tuple[Replica, ...]:
    """One replica per pod, sorted by address.

    A pod is in two slices while it moves between them, and in one slice per family on a dual-stack cluster. If one
    slice says not ready, the pod is not ready: leaving out a good replica for a moment costs less than a failed
    request.
    """
    pods: dict[str, Replica] = {}
    for replica in replicas:
        known = pods.get(replica.pod)
        if known is not None:
            replica = replace(
                known,
                ready=known.ready and replica.ready,
                terminating=known.terminating or replica.terminating,
            )
        pods[replica.pod] = replica
    return tuple(sorted(pods.values(), key=lambda r: r.address))
