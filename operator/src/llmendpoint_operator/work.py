"""What a leader does, put together: caches, what reads them, and the workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

from .circuits import Circuits
from .core.neighbours import Neighbours
from .core.snapshot import ScalerAddress
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
from .metrics import Metrics, Recommendations
from .models import Models
from .opinions import Opinions
from .reconcile import Reconciler
from .scaler import Scaler
from .settings import Settings
from .workqueue import WorkQueue

Tasks = Mapping[str, Callable[[], Coroutine[None, None, None]]]
OnEnd = Callable[[asyncio.Task[None]], None]


class Work:
    """The background tasks: those that watch, which a process that waits for the lease may have too, and a leader's."""

    def __init__(
        self, caches: Caches, queue: WorkQueue, opinions: Opinions, watching: Tasks, leading: Tasks
    ) -> None:
        self.caches = caches
        self.queue = queue
        self.opinions = opinions
        self._watching = watching
        self._leading = leading
        self._watches = False

    @contextlib.asynccontextmanager
    async def watching(self, on_end: OnEnd) -> AsyncIterator[None]:
        """What fills the caches is started, unless it has been already. `on_end` hears of a task that ends."""
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
        """A leader's work, the workers once the caches are filled; cancelled at the end."""
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


def make_work(api: KubeApi, wire: Wire, metrics: Metrics, settings: Settings, namespace: str) -> Work:
    """Everything that a leader needs; `namespace` is its own."""
    keda = settings.keda
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

    def heard(key: tuple[str, str]) -> None:
        scaler.heard(key)
        opinions.heard(key)
        circuits.heard(key)

    demands = Demands(wire, gateways, heard)
    opinions = Opinions(caches, demands)
    circuits = Circuits(demands.of, queue.add)
    metrics.circuits_open.set_function(lambda: len(circuits))
    metrics.registry.register(Recommendations(opinions.for_autoscalers))
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
        circuits=circuits,
        model_image=settings.model_image,
        inspection=Inspection(caches, settings.hub_endpoint, queue.add, nodes, settings.probe_image),
        scaler_address=ScalerAddress(keda.address, keda.authentication) if keda else None,
    )
    watching = {"caches": caches.run, "gateway pods": gateway_pods.run, "demand": demands.run}
    leading = {
        "events": events.run, "evidence": collector.run, "scaler": scaler.run, "circuits": circuits.run,
        "janitor": janitor.run, "workers": queue.run,
    }  # fmt: skip
    if nodes is not None:
        leading["nodes"] = nodes.run
    return Work(caches, queue, opinions, watching, leading)
