"""Connects the parts of the operator: caches, observers and workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass

from .core.endpoint.snapshot import ScalerAddress
from .core.names import Key
from .core.pods.neighbours import Neighbours
from .endpoint_metrics import EndpointStates
from .gather import Platform
from .kube import resources
from .kube.caches import Caches
from .kube.client import Json, KubeApi
from .kube.events import EventWriter
from .kube.store import Informer, dig, key_of
from .metrics import Metrics, Recommendations
from .observe.adapters.loader import AdapterLoader
from .observe.capacity.devices import Nodes
from .observe.capacity.inspection import Inspection
from .observe.gateways import GATEWAY_SELECTOR, Gateways
from .observe.models.hub import Hub
from .observe.models.janitor import Janitor
from .observe.models.tasks import Models
from .observe.observers import Observers
from .observe.rollout.evidence import Collector
from .observe.rollout.prospects import PodEvents
from .observe.scaling.circuit import Circuits
from .observe.scaling.demand import Demands
from .observe.scaling.opinion import Opinions
from .observe.scaling.scaler import Scaler
from .observe.wire import Wire
from .reconcile import Context, Reconciler
from .settings import Settings
from .workqueue import WorkQueue

Tasks = Mapping[str, Callable[[], Coroutine[None, None, None]]]
OnEnd = Callable[[asyncio.Task[None]], None]


class Work:
    """The background tasks. `watching` fills the caches; a process that waits for the Lease may run it too.
    `leading` is the leader's."""

    def __init__(self, caches: Caches, opinions: Opinions, watching: Tasks, leading: Tasks) -> None:
        self.caches = caches
        self.opinions = opinions
        self._watching = watching
        self._leading = leading
        self._watches = False

    @contextlib.asynccontextmanager
    async def watching(self, on_end: OnEnd) -> AsyncIterator[None]:
        """Run the tasks that fill the caches, unless they run already. `on_end` gets each task that ends."""
        if self._watches:
            yield
            return
        self._watches = True
        try:
            async with _started(self._watching, on_end):
                yield
        finally:
            self._watches = False

    @contextlib.asynccontextmanager
    async def running(self, on_end: OnEnd) -> AsyncIterator[None]:
        """Run the watches and, once the caches are synced, the leader's tasks; all end with the block."""
        async with self.watching(on_end):
            await self.caches.wait_synced()
            async with _started(self._leading, on_end):
                yield


@contextlib.asynccontextmanager
async def _started(work: Tasks, on_end: OnEnd) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(run(), name=name) for name, run in work.items()]
    for task in tasks:
        task.add_done_callback(on_end)
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The gateways' pods, and what the gateways report. `hearers` are called with each endpoint of which a
    gateway reported something new."""

    pods: Informer
    gateways: Gateways
    demands: Demands
    hearers: list[Callable[[Key], None]]


def make_work(api: KubeApi, wire: Wire, metrics: Metrics, settings: Settings, namespace: str) -> Work:
    """Creates all that a leader needs. `namespace` is the operator's own."""
    queue = WorkQueue(lambda key: reconciler.reconcile(key))
    caches = Caches(api, queue.add, settings.watch_namespace)
    events = EventWriter(api)
    platform = _platform(settings, namespace)
    seen = _see_gateways(api, wire, settings, settings.gateway_namespace or namespace, queue)
    collector = Collector(wire, seen.gateways, queue.add, PodEvents(api, queue.add))
    opinions = Opinions(caches, seen.demands.of)
    circuits = Circuits(seen.demands.of, queue.add)
    scaler = Scaler(seen.demands, queue.add, metrics)
    seen.hearers.extend([scaler.heard, opinions.heard, circuits.heard])
    models = Models(caches, Hub(settings.hub_endpoint, queue.add), wire, queue.add)
    janitor = Janitor(api, caches, events, lambda: models.wanted, settings.cache_retention_seconds)
    caches.on_model_job = models.on_wanted = janitor.wake
    nodes = _see_nodes(api, caches, queue) if settings.watch_namespace is None else None
    inspection = Inspection(caches, settings.hub_endpoint, queue.add, nodes, settings.probe_image)
    adapters = AdapterLoader(wire, queue.add)
    observers = Observers(scaler, circuits, models, collector, inspection, adapters)
    reconciler = Reconciler(Context(api, caches, events, metrics, observers, platform))
    metrics.queue_depth.set_function(lambda: len(queue))
    metrics.circuits_open.set_function(lambda: len(circuits))
    metrics.demand_streams.set_function(lambda: len(seen.demands))
    metrics.watched.set_function(lambda: len(collector))
    metrics.registry.register(Recommendations(opinions.for_autoscalers))
    metrics.registry.register(
        EndpointStates(lambda: caches.all(resources.ENDPOINTS) if metrics.leads else ())
    )
    watching = {"caches": caches.run, "gateway pods": seen.pods.run, "demand": seen.demands.run}
    leading = {
        "events": events.run, "evidence": collector.run, "scaler": scaler.run, "circuits": circuits.run,
        "adapters": adapters.run, "janitor": janitor.run, "workers": queue.run, **({} if nodes is None else {"nodes": nodes.run}),
    }  # fmt: skip
    return Work(caches, opinions, watching, leading)


def _see_gateways(api: KubeApi, wire: Wire, settings: Settings, namespace: str, queue: WorkQueue) -> _Seen:
    hearers: list[Callable[[Key], None]] = []

    def changed(_: Json) -> None:
        gateways.pods_changed()
        demands.pods_changed()

    def heard(key: Key) -> None:
        for hear in hearers:
            hear(key)

    pods = Informer(api, resources.PODS, changed, namespace, GATEWAY_SELECTOR)
    gateways = Gateways(wire, pods, settings.gateway_state_port, queue.add, settings.gateway_token)
    demands = Demands(wire, gateways, heard)
    return _Seen(pods, gateways, demands, hearers)


def _see_nodes(api: KubeApi, caches: Caches, queue: WorkQueue) -> Nodes:
    def changed() -> None:
        for endpoint in caches.informers[resources.ENDPOINTS].store:
            if dig(endpoint, "spec", "resources", "accelerator"):
                queue.add(key_of(endpoint))

    return Nodes(api, changed)


def _platform(settings: Settings, namespace: str) -> Platform:
    keda = settings.keda
    return Platform(
        gateway_url=settings.gateway_url,
        neighbours=Neighbours(
            operator=namespace,
            gateway=settings.gateway_namespace or namespace,
            prometheus=settings.prometheus_namespace,
        ),
        probe_image=settings.probe_image,
        model_image=settings.model_image,
        scaler_address=ScalerAddress(keda.address, keda.authentication) if keda else None,
        allowed=settings.allowed,
    )
