"""The operator's process: it acquires the Lease, then runs kopf, which starts and stops the leader's tasks.

kopf watches nothing here, because its handlers for create and update write finalizers and annotations into
users' objects. Changes in the operator's own caches trigger reconciliation, so a missed event does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from typing import Any

import kopf
import structlog

from .errors import ApiError, LeadershipLost
from .http import HttpServer
from .kube import resources
from .kube.client import Credentials, KubeApi
from .kube.lease import Lease
from .metrics import Metrics
from .observe.wire import Wire
from .settings import Keda, Settings
from .work import Work, make_work

log = structlog.get_logger()


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT. Raises LeadershipLost when another process took the Lease."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    credentials = await Credentials.load(settings.kubeconfig)
    metrics = Metrics()
    async with KubeApi(credentials) as api, Wire(metrics) as wire:
        work = make_work(api, wire, metrics, settings, credentials.namespace)
        async with (
            HttpServer(work.caches, metrics, settings.http_port) as http,
            contextlib.AsyncExitStack() as stack,
        ):
            lease = Lease(api, credentials.namespace, settings.lease_seconds)
            api.may_write = lambda: lease.is_held
            http.connected = await _connected(api, stop)
            if settings.keda is not None:
                await stack.enter_async_context(_external_scaler(settings.keda, work, stop))
            if not await _first(lease.acquire(), stop):
                return
            http.leading = True
            metrics.lead()
            try:
                await _lead(credentials, lease, work, stop)
            except LeadershipLost:
                log.exception("leadership lost")
                raise
            await lease.release()


@contextlib.asynccontextmanager
async def _external_scaler(keda: Keda, work: Work, stop: asyncio.Event) -> AsyncIterator[None]:
    """Serve KEDA's external scaler. A process that waits for the Lease does so too, so it runs the
    watches."""
    from .keda.service import Certificates, ScalerServer  # imported here: gRPC is loaded only with KEDA

    def on_end(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.error(
                "a task that KEDA's answers need has ended",
                task=task.get_name(),
                error=repr(task.exception()),
            )
            stop.set()

    async with work.watching(on_end):
        if not await _first(work.caches.wait_synced(), stop):
            yield
            return
        async with ScalerServer(work.opinions, Certificates(keda.tls), keda.port) as server:
            log.info("external scaler", port=server.port, address=keda.address)
            yield


async def _connected(api: KubeApi, stop: asyncio.Event) -> bool:
    """Wait until the API server answers and knows the LLMRuntime kind. Returns False when stopped before."""
    while not stop.is_set():
        try:
            await api.list(resources.RUNTIMES, None)
            return True
        except ApiError as error:
            log.warning("API server not ready for us", error=str(error))
            await _first(asyncio.sleep(1), stop)
    return False


async def _first(work: Any, stop: asyncio.Event) -> bool:
    """Await `work`. Returns True when it is done, False when `stop` was set first."""
    doing, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    done, pending = await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    if doing in done:
        doing.result()
    return doing in done


async def _lead(credentials: Credentials, lease: Lease, work: Work, stop: asyncio.Event) -> None:
    """Run the leader's tasks until stopped. The first task that fails ends the process with its error."""
    renewing = asyncio.create_task(lease.renew(), name="lease")
    stopping = asyncio.create_task(stop.wait(), name="stop")
    kopf_stop = asyncio.Event()
    registry, ended = _registry(credentials, work)
    operator = asyncio.create_task(
        kopf.operator(
            registry=registry,
            settings=_kopf_settings(),
            standalone=True,
            clusterwide=True,  # kopf watches nothing, but warns about a missing scope without this
            stop_flag=kopf_stop,
        ),
        name="kopf",
    )
    watched: set[asyncio.Future[Any]] = {renewing, stopping, operator, ended}
    try:
        done, _ = await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()  # kopf returns without an error when it handles the signal itself
    finally:
        kopf_stop.set()
        for task in (renewing, stopping):
            task.cancel()
        await asyncio.gather(renewing, stopping, operator, return_exceptions=True)
        log.info("stopped")


def _kopf_settings() -> kopf.OperatorSettings:
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # no watch of CRDs and namespaces, so no permission is needed
    return settings


def _registry(credentials: Credentials, work: Work) -> tuple[kopf.OperatorRegistry, asyncio.Future[None]]:
    """kopf's handlers, and a future that fails when a background task ends."""
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

    return registry, ended
