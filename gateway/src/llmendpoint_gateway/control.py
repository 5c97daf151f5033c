"""The gateway's state and the one place that changes it: store -> view -> snapshot -> acknowledgement -> table.

Everything runs on one event loop. A change marks the state dirty; the rebuild runs once for all the changes that
came in the same turn of the loop, so that a list of a thousand objects costs one snapshot.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from llmendpoint_gateway.ads import Ads
from llmendpoint_gateway.core.in_flight import InFlight
from llmendpoint_gateway.core.objects import Endpoint, Slice
from llmendpoint_gateway.core.pick import Picked, Rejected, pick, starting
from llmendpoint_gateway.core.routing import Table, make_table
from llmendpoint_gateway.core.snapshot import Snapshot, make_clusters
from llmendpoint_gateway.core.view import Kind, Store, View, make_view

SUSPICION_SECONDS = 3.0  # longer than it takes a dead pod's EndpointSlice to say so
log = structlog.get_logger()


class Control:
    """`clock`: seconds, monotonic."""

    def __init__(self, ads: Ads, clock: Callable[[], float]) -> None:
        self._ads = ads
        self._clock = clock
        self._store = Store()
        self._snapshot = Snapshot(0)
        self._wanted: frozenset[str] = frozenset()  # clusters held for more than their requests in flight
        self._table = Table()
        self._suspects: dict[str, float] = {}
        self._turn = 0
        self._dirty = False
        self.in_flight = InFlight()
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
        if self._suspects:
            self._clear_suspects()
        return pick(name, self._table, self.in_flight.counts, self._suspects, self._turn)

    def take(self, cluster: str, address: str) -> None:
        self.in_flight.take(cluster, address)

    def release(self, cluster: str, address: str) -> None:
        if self.in_flight.release(cluster, address) and cluster not in self._wanted:
            self._change()  # an old revision's cluster goes with its last request

    def suspect(self, host: str, port: int) -> None:
        """A connection to this replica failed a moment ago: leave it out while others can take its requests."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if address not in self._suspects:
            log.warning("replica cannot be reached", address=address, skipped_seconds=SUSPICION_SECONDS)
        self._suspects[address] = self._clock() + SUSPICION_SECONDS

    def state(self) -> dict[str, Any]:
        """What `/state` answers (docs/contracts.md)."""
        return {
            "generation": self.generation,
            "acknowledged": self._ads.acknowledged_generation,
            "connected": self._ads.connected,
            "synced": self.synced,
            "nack": self._ads.nack,
            "endpoints": {
                key: self._endpoint_state(endpoint) for key, endpoint in self.view.endpoints.items()
            },
        }

    def _endpoint_state(self, endpoint: Endpoint) -> dict[str, Any]:
        replicas = [
            {
                "address": replica.address,
                "pod": replica.pod,
                "revision": revision,
                "ready": replica.routable,
                "in_flight": self.in_flight.of(f"{key}/{revision}", replica.address),
            }
            for (key, revision), members in self.view.replicas.items()
            if key == endpoint.key
            for replica in members
        ]
        names = [name for name, key in self.view.names.items() if key == endpoint.key]
        return {"names": names, "activeRevision": endpoint.active_revision, "replicas": replicas}

    def _clear_suspects(self) -> None:
        now = self._clock()
        for address in [a for a, until in self._suspects.items() if until <= now]:
            del self._suspects[address]

    def _change(self) -> None:
        if not self._dirty:
            self._dirty = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def _rebuild(self) -> None:
        self._dirty = False
        if not self.synced:
            return  # half a list is not a state: Envoy keeps what it has, and nothing is routed yet
        self.view = make_view(self._store)
        self._wanted = frozenset(make_clusters(self.view, ()))
        clusters = make_clusters(self.view, self.in_flight.busy())
        if self.generation == 0 or clusters != self._snapshot.clusters:
            self._snapshot = Snapshot(self.generation + 1, clusters)
            self._ads.publish(self._snapshot)
        self._retable()

    def _retable(self) -> None:
        self._table = make_table(self.view, self._ads.acknowledged_addresses(), self._table)
