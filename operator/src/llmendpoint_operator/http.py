"""The HTTP server of /healthz, /readyz and /metrics."""

from __future__ import annotations

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from .kube.caches import Caches
from .metrics import Metrics

STALE_AFTER_S = 150.0
"""Seconds. Watches restart every minute, so a longer silence means that the API server is not heard."""


class HttpServer:
    """Serves the pages. A process that waits for the Lease reports ready, because it can take over."""

    def __init__(self, caches: Caches, metrics: Metrics, port: int) -> None:
        self._caches = caches
        self._metrics = metrics
        self._port = port
        self._runner: web.AppRunner | None = None
        self.leading = False
        self.connected = False

    async def __aenter__(self) -> HttpServer:
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics_page),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "leading": self.leading})

    async def _readyz(self, _: web.Request) -> web.Response:
        if not self.connected:
            return web.json_response(
                {"status": "starting", "detail": "the API server has not answered yet"}, status=503
            )
        if not self.leading:
            return web.json_response({"status": "standby"})
        if not self._caches.synced:
            return web.json_response(
                {"status": "syncing", "detail": "not every kind is listed yet"}, status=503
            )
        if self._caches.staleness > STALE_AFTER_S:
            detail = f"a watch has been silent for {self._caches.staleness:.0f} s"
            return web.json_response({"status": "stale", "detail": detail}, status=503)
        return web.json_response({"status": "ready"})

    async def _metrics_page(self, _: web.Request) -> web.Response:
        for resource, informer in self._caches.informers.items():
            self._metrics.watch_staleness.labels(resource.plural).set(
                informer.staleness if self.leading else 0
            )
            self._metrics.objects.labels(resource.plural).set(len(informer.store))
        body = generate_latest(self._metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})
