"""What a leader does, put together: caches, what reads them, and the workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

from .core.neighbours import Neighbours
from .evidence import GATEWAY_SELECTOR, Collector, Demands, Gateways, Wire
from .hub import Hub
from .inspection import Inspection
from .janitor import Janitor
from .kube import resources
from .kube.caches import Caches
from .kube.client import Json, KubeApi
from .kube.events import EventWriter
from .kube.nodes import Nodes
from .kube.store import Informer, key_of
from .metrics import Metrics
from .models import Models
from .reconcile import Reconciler
from .scaler import Scaler
from .settings import Settings
from .workqueue import WorkQueue


class Work:
    """The background tasks of a leader: caches, then what reads them, then workers."""

    def __init__(
        self,
        caches: Caches,
        queue: WorkQueue,
        background: Mapping[str, Callable[[], Coroutine[None, None, None]]],
    ) -> None:
        self.caches = caches
        self._background = background
        self.queue = queue

    @contextlib.asynccontextmanager
    async def running(self, on_end: Callable[[asyncio.Task[None]], None]) -> AsyncIterator[None]:
        """Started, the workers once the caches are filled; cancelled at the end. `on_end` hears of a task that ends."""
        tasks: list[asyncio.Task[None]] = []

        def start(work: Coroutine[None, None, None], name: str) -> None:
            tasks.append(asyncio.create_task(work, name=name))
            tasks[-1].add_done_callback(on_end)

        start(self.caches.run(), "caches")
        try:
            await self.caches.wait_synced()
            for name, work in self._background.items():
                start(work(), name)
            start(self.queue.run(), "workers")
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def make_work(api: KubeApi, wire: Wire, metrics: Metrics, settings: Settings, namespace: str) -> Work:
    """Everything that a leader needs; `namespace` is its own."""
    queue = WorkQueue(lambda key: reconciler.reconcile(key))
    metrics.queue_depth.set_function(lambda: len(queue))
    caches = Caches(api, queue.add, settings.watch_namespace)
    events = EventWriter(api)
    neighbours = Neighbours(
        operator=namespace,
        gateway=settings.gateway_namespace or namespace,
        prometheus=settings.prometheus_namespace,
    )

    def gateway_pods_changed(_: Json) -> None:
        gateways.pods_changed()
        demands.pods_changed()

    gateway_pods = Informer(api, resources.PODS, gateway_pods_changed, neighbours.gateway, GATEWAY_SELECTOR)
    gateways = Gateways(wire, gateway_pods, settings.gateway_state_port, queue.add)
    collector = Collector(wire, gateways, queue.add)
    demands = Demands(wire, gateways, lambda key: scaler.heard(key))
    scaler = Scaler(demands, queue.add, metrics)
    metrics.demand_streams.set_function(lambda: len(demands))
    metrics.watched.set_function(lambda: len(collector))
    models = Models(caches, Hub(settings.hub_endpoint, queue.add), wire, queue.add)
    janitor = Janitor(api, caches, lambda: models.wanted, settings.cache_retention_seconds)
    caches.on_model_job = models.on_wanted = janitor.wake

    def nodes_changed() -> None:
        for endpoint in caches.informers[resources.ENDPOINTS].store:
            if endpoint.get("spec", {}).get("resources", {}).get("accelerator"):
                queue.add(key_of(endpoint))

    nodes = Nodes(api, nodes_changed) if settings.watch_namespace is None else None
    reconciler = Reconciler(
        api,
        caches,
        events,
        metrics,
        settings.gateway_url,
        collector,
        neighbours,
        settings.probe_image,
        scaler=scaler,
        models=models,
        model_image=settings.model_image,
        inspection=Inspection(caches, settings.hub_endpoint, queue.add, nodes, settings.probe_image),
    )
    background = {
        "events": events.run,
        "gateway pods": gateway_pods.run,
        "evidence": collector.run,
        "demand": demands.run,
        "scaler": scaler.run,
        "janitor": janitor.run,
    }
    if nodes is not None:
        background["nodes"] = nodes.run
    return Work(caches, queue, background)
