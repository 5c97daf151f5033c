"""The gateway's state and the one place that changes it: store -> view -> snapshot -> acknowledgement -> table.

Everything runs on one event loop. A change marks the state dirty; the rebuild runs once for all the changes that
came in the same turn of the loop, so that a list of a thousand objects costs one snapshot.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from llmendpoint_gateway.ads import Ads
from llmendpoint_gateway.core.breaker import Breakers
from llmendpoint_gateway.core.circuit import Circuits
from llmendpoint_gateway.core.in_flight import InFlight
from llmendpoint_gateway.core.loads import Load, Loads
from llmendpoint_gateway.core.objects import Endpoint, Replica, Slice
from llmendpoint_gateway.core.pick import Picked, Rejected, pick, starting
from llmendpoint_gateway.core.poison import Poison
from llmendpoint_gateway.core.rotation import Rotation
from llmendpoint_gateway.core.routing import Route, Table, cluster_name, make_table
from llmendpoint_gateway.core.snapshot import Hosts, Snapshot, make_clusters
from llmendpoint_gateway.core.traffic import DEFAULT_QUEUE, QueueSettings
from llmendpoint_gateway.core.view import Kind, Store, View, make_view
from llmendpoint_gateway.core.waiting import Admission, Claim, Waiting

T = TypeVar("T", bound=Hashable)


class Control:
    """`clock`: seconds, monotonic. `hold_seconds`: how long a request waits where its endpoint does not say. `stale`
    tells whether the API server is out of reach. `on_table` is told when requests may go elsewhere than before,
    `on_room` when one that waits for this endpoint may have room, and `on_first_wait` when the first waits for it."""

    def __init__(self, ads: Ads, clock: Callable[[], float], hold_seconds: float = 0.0) -> None:
        self._ads = ads
        self._clock = clock
        self._zero = datetime.now(UTC) - timedelta(seconds=clock())
        self._hold_seconds = hold_seconds
        self._store = Store()
        self._snapshot = Snapshot(0)
        self._wanted: frozenset[str] = frozenset()  # clusters held for more than their requests in flight
        self._table = Table()
        self._rotation = Rotation()
        self._told: dict[str, int] = {}
        self._turn = 0
        self._dirty = False
        self._changed: set[str] = set()  # endpoints of which something may be new since it was last asked
        self._cluster_of: dict[str, str] = {}  # by address
        self.stale: Callable[[], bool] = lambda: False
        self.on_table: Callable[[], None] = lambda: None
        self.on_room: Callable[[str], None] = lambda _: None
        self.on_first_wait: Callable[[str], None] = lambda _: None
        self.waiting: Waiting[Any] = Waiting()
        self.in_flight = InFlight()
        self.breakers = Breakers()
        self.circuits = Circuits(clock())
        self.poison = Poison()
        self.loads = Loads()
        self.known_revisions: Mapping[str, Mapping[str, tuple[Replica, ...]]] = {}
        self.view: View = make_view(self._store)
        ads.on_change = self._retable

    @property
    def synced(self) -> bool:
        return self._store.synced

    @property
    def started(self) -> bool:
        """Whether Envoy has taken a snapshot since this picker started."""
        return self._ads.acknowledged_generation > 0

    @property
    def generation(self) -> int:
        return self._snapshot.generation

    def relisted(self, kind: Kind, objects: Mapping[str, Endpoint | Slice]) -> None:
        self._store = self._store.relisted(kind, objects)
        self._change()

    def applied(self, kind: Kind, key: str, item: Endpoint | Slice) -> None:
        self._store = self._store.applied(kind, key, item)
        self._change()

    def deleted(self, kind: Kind, key: str) -> None:
        self._store = self._store.deleted(kind, key)
        self._change()

    def pick(self, name: str) -> Picked | Rejected:
        if not self.started:
            return starting()
        self._turn += 1
        return pick(
            name,
            self._table,
            self._rotation,
            self.in_flight.counts,
            self.breakers,
            self._turn,
            self._clock(),
            self.stale(),
            self.loads.limits,
            self.circuits,
        )

    def take(self, picked: Picked) -> None:
        self.in_flight.take(picked.cluster, picked.addresses[0])
        self.loads.touched.add(picked.addresses[0])
        self._changed.add(picked.endpoint)
        if picked.trial:
            self.breakers.trial_began(picked.addresses[0])
            self.circuits.trial_began(picked.endpoint)

    def release(self, picked: Picked) -> None:
        now = self._clock()
        self.breakers.ended(picked.addresses[0], now, trial=picked.trial)
        self.circuits.ended(picked.endpoint, now)
        if picked.trial:
            self.circuits.trial_ended(picked.endpoint, now)
        self._changed.add(picked.endpoint)
        last = self.in_flight.release(picked.cluster, picked.addresses[0])
        if last and picked.cluster not in self._wanted:
            self._change()  # an old revision's cluster goes with its last request
        if self.waiting.requests and self.waiting.count(picked.endpoint):
            self.on_room(picked.endpoint)

    def queue_of(self, endpoint: str) -> QueueSettings:
        found = self.view.endpoints.get(endpoint)
        return found.queue if found else DEFAULT_QUEUE

    def patience(self, endpoint: str) -> float:
        """Seconds for which a request waits for this endpoint; 0: nobody does."""
        queue = self.queue_of(endpoint)
        if not queue.most:
            return 0.0
        return self._hold_seconds if queue.seconds is None else queue.seconds

    def wait(self, endpoint: str, held: T, claim: Claim) -> Admission[T]:
        """Let a request wait, where there is room for it."""
        admission = self.waiting.add(endpoint, held, claim, self.queue_of(endpoint).most)
        if admission.admitted:
            self._changed.add(endpoint)
            if self.waiting.count(endpoint) == 1:
                self.on_first_wait(endpoint)
        return admission

    def serve(self, endpoint: str, held: Hashable, seconds: float) -> None:
        """It was its turn, after so long."""
        self.waiting.serve(endpoint, held, seconds)
        self._changed.add(endpoint)

    def leave(self, endpoint: str, held: Hashable) -> None:
        """It waits no longer."""
        self.waiting.remove(endpoint, held)
        self._changed.add(endpoint)

    def unread(self, most: int) -> list[str]:
        """Addresses of replicas that are to be asked for their load now, at most so many."""
        busy = {address for counts in self.in_flight.counts.values() for address in counts}
        for endpoint in self.waiting:
            busy.update(r.address for rs in self.known_revisions.get(endpoint, {}).values() for r in rs)
        return self.loads.due(self._clock(), busy, most)

    def note_load(self, address: str, load: Load | None) -> None:
        """What a replica answered; None: nothing that could be read."""
        changed, cluster = self.loads.note(address, load, self._clock()), self._cluster_of.get(address)
        if cluster is None:
            return
        endpoint = endpoint_of(cluster)
        queue = self.queue_of(endpoint)
        if load is not None and self.patience(endpoint) > 0:
            self.loads.limits[address] = queue.limit(load, self.in_flight.of(cluster, address))
        if changed:
            self._changed.add(endpoint)
        if self.waiting.count(endpoint):
            self.on_room(endpoint)

    def take_changed(self) -> frozenset[str]:
        """Endpoints of which something may have changed since this was last called."""
        changed = frozenset(self._changed)
        self._changed.clear()
        return changed

    def changed(self, endpoint: str) -> None:
        """Something of it may have."""
        self._changed.add(endpoint)

    def expire(self) -> None:
        """What is stale by now is unknown, and what is unknown has room."""
        for address in self.loads.expire(self._clock()):
            self._changed.add(endpoint_of(self._cluster_of[address]))
        for endpoint in self.waiting:
            self.on_room(endpoint)

    def tell(self, epochs: Mapping[str, int]) -> None:
        """Epochs by endpoint that another gateway has acknowledged."""
        self._told.update(epochs)

    def now(self) -> float:
        """Of the clock."""
        return self._clock()

    def time_of(self, seconds: float) -> str:
        """RFC 3339 of a moment of the clock."""
        moment = self._zero + timedelta(seconds=seconds)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def behind(self) -> list[str]:
        """Endpoints of which another gateway follows a later epoch."""
        return sorted(key for key, epoch in self._told.items() if epoch > self._epoch(key, -1))

    def revisions(self, key: str) -> list[str]:
        """Of one endpoint, those that are known here."""
        return list(self.known_revisions.get(key, ()))

    def route(self, key: str) -> Route | None:
        """Where the requests of an endpoint go now."""
        return self._table.routes.get(key)

    def _epoch(self, key: str, default: int) -> int:
        route = self.route(key)
        epoch = route.assignment.epoch if route and route.assignment else None
        return default if epoch is None else epoch

    def _change(self) -> None:
        if not self._dirty:
            self._dirty = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def _rebuild(self) -> None:
        self._dirty = False
        if not self.synced:
            return  # half a list is not a state: Envoy keeps what it has, and nothing is routed yet
        before = self.view
        self.view = make_view(self._store)
        for key in before.endpoints.keys() - self.view.endpoints.keys():
            self._told.pop(key, None)
        self.known_revisions = self.view.revisions()
        self._changed.update(before.endpoints, self.view.endpoints)
        self._rotation.keep(frozenset(self.view.endpoints))
        self.waiting.keep(self.view.endpoints)
        self.circuits.keep(self.view.endpoints)
        self._cluster_of = {
            r.address: cluster_name(*revision)
            for revision, replicas in self.view.replicas.items()
            for r in replicas
            if r.routable
        }
        self.breakers.keep(self._cluster_of.keys())
        limited = [a for a, c in self._cluster_of.items() if self.patience(endpoint_of(c)) > 0]
        self.loads.keep(self._cluster_of.keys(), self._clock(), limited)
        wanted = make_clusters(self.view)
        self._wanted = frozenset(wanted)
        clusters: dict[str, Hosts] = (
            dict.fromkeys(self.in_flight.busy(), ()) | wanted
        )  # none goes while a request is on it
        if self.generation == 0 or clusters != self._snapshot.clusters:
            self._snapshot = Snapshot(self.generation + 1, clusters)
            self._ads.publish(self._snapshot)
        self._retable()

    def _retable(self) -> None:
        before = {key: self._epoch(key, -1) for key in self._told}
        self._table = make_table(self.view, self._ads.acknowledged_addresses(), self._table)
        for key, epoch in before.items():
            if self._epoch(key, -1) < epoch:
                del self._told[key]  # a restored backup: what was told is of a time that is no more
        self.on_table()


def endpoint_of(cluster: str) -> str:
    return cluster.rpartition("/")[0]
