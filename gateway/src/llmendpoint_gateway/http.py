"""The picker's HTTP port: health, readiness, state and metrics. No request of a client comes here."""

from collections.abc import Callable

from aiohttp import web
from orjson import dumps
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from llmendpoint_gateway.ads import Ads
from llmendpoint_gateway.control import Control


def make_app(
    control: Control, ads: Ads, registry: CollectorRegistry, staleness: Callable[[], float]
) -> web.Application:
    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        """Ready once Envoy holds a first snapshot.

        A lost API server is reported and does not make it unready: all gateways lose it together, and would take
        each other out of service while they still know where to send requests.
        """
        ready = ads.connected and control.started
        body = {
            "ready": ready,
            "synced": control.synced,
            "connected": ads.connected,
            "acknowledged": ads.acknowledged_generation,
            "watch_staleness_seconds": round(staleness(), 1),
        }
        return _json(body, 200 if ready else 503)

    async def state(_request: web.Request) -> web.Response:
        return _json(control.state())

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/state", state),
            web.get("/metrics", metrics),
        ]
    )
    return app


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=dumps(body), status=status, content_type="application/json")
