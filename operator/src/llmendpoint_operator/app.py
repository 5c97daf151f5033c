"""The process: the lease first, then kopf, which starts and ends the work and wakes endpoints on their events.

kopf has no create or update handlers here: those write finalizers and annotations into users' objects. What it hears
only wakes a key; what is true is in our caches, which a missed event cannot spoil.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

import kopf
import structlog

from .api import GROUP, VERSION
from .core.neighbours import Neighbours
from .errors import ApiError, LeadershipLost
from .evidence import GATEWAY_SELECTOR, Collector, Gateways, Wire
from .http import HttpServer
from .kube import resources
from .kube.caches import Caches
from .kube.client import Credentials, KubeApi
from .kube.events import EventWriter
from .kube.lease import Lease
from .kube.store import Informer
from .metrics import Metrics
from .reconcile import Reconciler
from .workqueue import WorkQueue

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line says."""

    http_port: int = 8082
    watch_namespace: str | None = None
    kubeconfig: str | None = None
    gateway_url: str | None = None
    lease_seconds: int = 15
    gateway_namespace: str | None = None
    prometheus_namespace: str = "monitoring"
    probe_image: str | None = None
    gateway_state_port: int = 8081


async def run(settings: Settings) -> None:
    """Until SIGTERM or SIGINT; raises LeadershipLost when somebody else took over."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    credentials = await Credentials.load(settings.kubeconfig)
    metrics = Metrics()
    async with KubeApi(credentials) as api, Wire(metrics) as wire:
        queue = WorkQueue(lambda key: reconciler.reconcile(key))
        metrics.queue_depth.set_function(lambda: len(queue))
        caches = Caches(api, queue.add, settings.watch_namespace)
        events = EventWriter(api)
        neighbours = Neighbours(
            operator=credentials.namespace,
            gateway=settings.gateway_namespace or credentials.namespace,
            prometheus=settings.prometheus_namespace,
        )
        gateway_pods = Informer(
            api, resources.PODS, lambda _: gateways.pods_changed(), neighbours.gateway, GATEWAY_SELECTOR
        )
        gateways = Gateways(wire, gateway_pods, settings.gateway_state_port, queue.add)
        collector = Collector(wire, gateways, queue.add)
        metrics.watched.set_function(lambda: len(collector))
        reconciler = Reconciler(
            api, caches, events, metrics, settings.gateway_url, collector, neighbours, settings.probe_image
        )
        async with HttpServer(caches, metrics, settings.http_port) as http:
            lease = Lease(api, credentials.namespace, settings.lease_seconds)
            api.may_write = lambda: lease.is_held
            http.connected = await _connected(api, stop)
            if not await _first(lease.acquire(), stop):
                return
            http.leading = True
            metrics.leader.set(1)
            try:
                background = {
                    "events": events.run, "gateway pods": gateway_pods.run, "evidence": collector.run,
                }  # fmt: skip
                await _lead(settings, credentials, lease, _Work(caches, queue, background), stop)
            except LeadershipLost:
                log.exception("leadership lost")
                raise
            await lease.release()


async def _connected(api: KubeApi, stop: asyncio.Event) -> bool:
    """Wait until the API server answers and knows our kinds."""
    while not stop.is_set():
        try:
            await api.list(resources.RUNTIMES, None)
            return True
        except ApiError as error:
            log.warning("API server not ready for us", error=str(error))
            await _first(asyncio.sleep(1), stop)
    return False


async def _first(work: Any, stop: asyncio.Event) -> bool:
    """Await `work` until done (True) or until stopped (False)."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    done, pending = await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if doing in done:
        doing.result()
    return doing in done


class _Work:
    """The background tasks of a leader: caches, then what reads them, then workers."""

    def __init__(
        self,
        caches: Caches,
        queue: WorkQueue,
        background: Mapping[str, Callable[[], Coroutine[None, None, None]]],
    ) -> None:
        self._caches = caches
        self._background = background
        self.queue = queue

    @contextlib.asynccontextmanager
    async def running(self, on_end: Callable[[asyncio.Task[None]], None]) -> AsyncIterator[None]:
        """Started, the workers once the caches are filled; cancelled at the end. `on_end` hears of a task that ends."""
        tasks: list[asyncio.Task[None]] = []

        def start(work: Coroutine[None, None, None], name: str) -> None:
            tasks.append(asyncio.create_task(work, name=name))
            tasks[-1].add_done_callback(on_end)

        start(self._caches.run(), "caches")
        try:
            await self._caches.wait_synced()
            for name, work in self._background.items():
                start(work(), name)
            start(self.queue.run(), "workers")
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _lead(
    settings: Settings, credentials: Credentials, lease: Lease, work: _Work, stop: asyncio.Event
) -> None:
    """Work until stopped; the first task that fails ends the process with its error."""
    renewing = asyncio.create_task(lease.renew(), name="lease")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    kopf_stop = asyncio.Event()
    scope: dict[str, Any] = (
        {"namespaces": [settings.watch_namespace]} if settings.watch_namespace else {"clusterwide": True}
    )
    registry, ended = _registry(credentials, work)
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry, settings=_kopf_settings(), standalone=True, stop_flag=kopf_stop, **scope
        ),
        name="kopf",
    )
    watched: set[asyncio.Future[Any]] = {renewing, stopping, operator, ended}
    try:
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # kopf ends without an error when it takes the signal itself
    finally:
        kopf_stop.set()
        for task in (renewing, stopping):
            task.cancel()
        await asyncio.gather(renewing, stopping, operator, return_exceptions=True)
        log.info("stopped")


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True  # no watch of CRDs and namespaces, so no permission for them
    settings.watching.server_timeout = 300
    return settings


def _registry(credentials: Credentials, work: _Work) -> tuple[kopf.OperatorRegistry, asyncio.Future[None]]:
    """kopf's handlers, and a future that fails when a background task does."""
    registry = kopf.OperatorRegistry()
    stack = contextlib.AsyncExitStack()
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_end(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and not ended.done():
            ended.set_exception(task.exception() or ApiError(0, f"task {task.get_name()} ended by itself"))

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        configuration = credentials.configuration
        token = await credentials.token()
        return kopf.ConnectionInfo(
            server=credentials.host,
            ca_path=configuration.ssl_ca_cert,
            insecure=not configuration.verify_ssl,
            certificate_path=configuration.cert_file,
            private_key_path=configuration.key_file,
            scheme="Bearer" if token else None,
            token=token,
        )

    @kopf.on.startup(registry=registry)
    async def start(**_: Any) -> None:
        await stack.enter_async_context(work.running(on_end))

    @kopf.on.cleanup(registry=registry)
    async def end(**_: Any) -> None:
        await stack.aclose()

    @kopf.on.event(GROUP, VERSION, resources.ENDPOINTS.plural, registry=registry)
    async def wake(namespace: str | None, name: str, **_: Any) -> None:
        work.queue.add((namespace or "", name))

    return registry, ended
