"""The gateway's configuration and the only place that changes it: store -> view -> snapshot -> acknowledgement ->
table.

Everything runs on one event loop. A change marks its endpoint. The marked endpoints are processed once for all changes
of the same turn of the loop, so a list of a thousand objects costs one snapshot.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import structlog

from llmendpoint_gateway.core.endpoint.objects import Endpoint, Slice
from llmendpoint_gateway.core.endpoint.view import Kind, Store, change_view
from llmendpoint_gateway.core.envoy.snapshot import Clusters, Snapshot
from llmendpoint_gateway.core.placement.placement import Placement, endpoint_of
from llmendpoint_gateway.core.placement.routing import change_table
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.identity.gate import Gate
from llmendpoint_gateway.serve.request.held import HeldRequests

TOLD_SECONDS = 60.0
"""The operator repeats its reports to a gateway every 2 s. If the watch works, a report of this age was for an endpoint
that has been deleted or created anew since."""


MOST_TOLD = 10_000
"""Endpoints. Those that this gateway does not know count too: one may be new, and the watch may be broken without
notice."""

MOST_AHEAD = 100_000
"""An epoch that is later than ours by more than this is not real: each assignment adds one."""


log = structlog.get_logger()


class _Told(NamedTuple):
    """An epoch that another gateway pod follows, and when that was reported."""

    epoch: int
    at: float


class Control:
    """Makes what Envoy and `placement` use from the watched objects, then retries the held requests. `now`: seconds,
    monotonic."""

    def __init__(
        self,
        ads: Ads,
        placement: Placement,
        held: HeldRequests,
        clock: Callable[[], float],
        gate: Gate | None = None,
    ) -> None:
        self._ads = ads
        self.placement, self.held, self.now, self.gate = placement, held, clock, gate
        self._store = Store()
        self._snapshot = Snapshot(0)
        self._clusters = Clusters()
        self._due: set[str] = set()  # endpoints to be processed again
        self._unpublished: set[str] = set()  # clusters that Envoy is to be told of
        self._told: dict[str, _Told] = {}
        self._strange: set[str] = set()  # told of, and perhaps not in the view
        self._dirty = False

    @property
    def synced(self) -> bool:
        return self._store.synced

    @property
    def started(self) -> bool:
        """Whether Envoy has had a whole snapshot since this picker started. What it refuses of it holds up nothing else."""
        return self._ads.started

    @property
    def generation(self) -> int:
        return self._snapshot.generation

    def relisted(self, kind: Kind, objects: Mapping[str, Endpoint | Slice]) -> None:
        self._store.relisted(kind, objects)
        self._change()

    def applied(self, kind: Kind, key: str, item: Endpoint | Slice) -> None:
        self._store.applied(kind, key, item)
        self._change()

    def deleted(self, kind: Kind, key: str) -> None:
        self._store.deleted(kind, key)
        self._change()

    async def run(self) -> None:
        """Update the table after each acknowledgement of Envoy."""
        while True:
            clusters = await self._ads.acknowledged()
            try:
                self._retable({endpoint_of(cluster) for cluster in clusters})
            except Exception:  # any: an error in one waiting request must not end the picker
                log.exception("an acknowledgement was not followed to its end")

    def tell(self, epochs: Mapping[str, int]) -> None:
        """Take over epochs by endpoint that another gateway pod has acknowledged."""
        now = self.now()
        for key, epoch in epochs.items():
            room = key in self._told or len(self._told) < MOST_TOLD
            if room and 0 <= epoch <= max(0, self._epoch(key, 0)) + MOST_AHEAD:
                self._told[key] = _Told(epoch, now)
                if key not in self.placement.view.endpoints:
                    self._strange.add(key)

    @property
    def behind(self) -> list[str]:
        """The endpoints for which another gateway pod follows a later epoch."""
        now = self.now()
        since = now - self.placement.reach.seconds(now) - TOLD_SECONDS
        return sorted(
            key for key, told in self._told.items() if told.at >= since and told.epoch > self._epoch(key, -1)
        )

    def _epoch(self, key: str, default: int) -> int:
        route = self.placement.route(key)
        epoch = route.assignment.epoch if route and route.assignment else None
        return default if epoch is None else epoch

    def _change(self) -> None:
        if not self._dirty:
            self._dirty = True
            asyncio.get_running_loop().call_soon(self._rebuild)

    def idle(self, cluster: str) -> None:
        """Remove an old revision's cluster after its last request."""
        if cluster in self._clusters.leaving:
            self._due.add(endpoint_of(cluster))
            self._change()

    def _rebuild(self) -> None:
        self._dirty = False
        if not self.synced:
            return  # half a list is no state: Envoy keeps what it has, and nothing is routed yet
        self._due |= self._store.take_touched()
        keys, placement = frozenset(self._due), self.placement
        view = change_view(placement.view, {key: self._store.part(key) for key in keys})
        self._strange.update(self._told.keys() & keys)
        if not placement.reach.stale:  # otherwise an endpoint may exist that this gateway does not know
            for key in self._strange - view.endpoints.keys():
                self._told.pop(key, None)
            self._strange.clear()
        placement.follow(view, keys, self.now())
        if self.gate is not None:
            self.gate.permits.follow(view, keys, self.now())
        for key in keys:
            if key not in view.endpoints:
                self.held.forget(key)
        self._publish(keys)
        self._retable(keys)
        self._due -= keys  # only now: after an exception they are due again

    def _publish(self, keys: Collection[str]) -> None:
        view, busy = self.placement.view, self.placement.has_any
        for key in keys:
            self._unpublished |= self._clusters.change(key, view.part(key), busy)
        if self.generation == 0 or self._unpublished:
            changed = frozenset(self._unpublished)
            self._snapshot = Snapshot(self.generation + 1, self._clusters.hosts, changed)
            self._ads.publish(self._snapshot)
            self._unpublished -= changed  # only now: after an exception they are to be told again

    def _retable(self, keys: Collection[str]) -> None:
        placement = self.placement
        before = {key: self._epoch(key, -1) for key in keys if key in self._told}
        names, started = placement.table.names, placement.started
        table = change_table(placement.table, placement.view, keys, self._ads.addresses)
        placement.route_by(table, self.started)
        for key, epoch in before.items():
            if self._epoch(key, -1) < epoch:
                del self._told[key]  # a restored backup: earlier reports no longer apply
        if table.names is not names or self.started != started:
            self.held.retry_all()
            return
        for key in keys:
            self.held.retry(key)
