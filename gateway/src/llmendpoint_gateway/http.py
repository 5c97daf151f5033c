"""The picker's HTTP port: health, readiness, state and metrics. No request of a client comes here.

What reads is open to whom the NetworkPolicies admit; what writes asks for the operator's token.
"""

from collections.abc import Callable

from aiohttp import web
from orjson import JSONDecodeError, dumps, loads
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from llmendpoint_gateway.ads import Ads
from llmendpoint_gateway.callers import Callers
from llmendpoint_gateway.control import Control
from llmendpoint_gateway.demand import DemandStream
from llmendpoint_gateway.envoy_stats import EnvoyStats
from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.state import describe


def make_app(
    control: Control,
    ads: Ads,
    registry: CollectorRegistry,
    staleness: Callable[[], float],
    envoy: EnvoyStats,
    demand: DemandStream,
    callers: Callers,
) -> web.Application:
    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        """Ready once Envoy holds a first snapshot.

        A lost API server alone is reported and does not make it unready: all gateways lose it together, and would
        take each other out of service while they still know where to send requests. It does when another gateway
        has gone on to a later epoch meanwhile: then this one alone is cut off.
        """
        behind = control.behind if staleness() else []
        ready = ads.connected and control.started and not behind
        body = {
            "ready": ready,
            "synced": control.synced,
            "connected": ads.connected,
            "acknowledged": ads.acknowledged_generation,
            "watch_staleness_seconds": round(staleness(), 1),
            "behind": behind,
        }
        return _json(body, 200 if ready else 503)

    async def state(request: web.Request) -> web.Response:
        callers.meet(request.headers.get("Authorization"))
        return _json(describe(control, ads))

    async def revisions(request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        try:
            return _json(await envoy.attempts(key, list(control.placement.known_revisions.get(key, ()))))
        except EnvoyAway as error:
            return _json({"error": str(error)}, 503)

    async def demand_lines(request: web.Request) -> web.StreamResponse:
        callers.meet(request.headers.get("Authorization"))
        return await demand.handle(request)

    async def epoch(request: web.Request) -> web.Response:
        if refusal := await callers.refusal(request.headers.get("Authorization")):
            return _json({"error": refusal.message}, refusal.status)
        try:
            epochs = read_epochs(await request.read())
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        control.tell(epochs)
        return _json({"behind": control.behind})

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    app = web.Application()
    app.on_shutdown.append(demand.close)
    app.add_routes(
        [
            web.get("/healthz", healthz),
            web.get("/readyz", readyz),
            web.get("/state", state),
            web.get("/revisions/{namespace}/{name}", revisions),
            web.post("/epoch", epoch),
            web.get("/demand", demand_lines),
            web.get("/metrics", metrics),
        ]
    )
    return app


def read_epochs(body: bytes) -> dict[str, int]:
    """The body of `POST /epoch`; ValueError says what it is to be."""
    try:
        document = loads(body)
    except JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict) or not all(type(epoch) is int for epoch in document.values()):
        raise ValueError('the body is to be {"namespace/name": epoch}, with whole numbers')
    return document


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=dumps(body), status=status, content_type="application/json")
