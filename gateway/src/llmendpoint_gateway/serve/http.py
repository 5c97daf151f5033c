"""The picker's HTTP port: health, readiness, state and metrics. Clients' requests do not come here.

NetworkPolicies decide who may read. Writing requires the operator's token.
"""

from dataclasses import dataclass

from aiohttp import web
from orjson import JSONDecodeError, dumps, loads
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry

from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.collectors import EnvoyCollector
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.identity.token_reviews import Callers
from llmendpoint_gateway.serve.placement.control import Control
from llmendpoint_gateway.serve.placement.demand_stream import DemandStream
from llmendpoint_gateway.serve.registry_page import in_pieces, registry_pieces
from llmendpoint_gateway.serve.request_page import requests_page
from llmendpoint_gateway.serve.state import describe


@dataclass(frozen=True, slots=True)
class Pages:
    """What the port shows, and the one page that is written to."""

    control: Control
    ads: Ads
    registry: CollectorRegistry
    of_envoy: EnvoyCollector
    envoy: EnvoyStats
    demand: DemandStream
    callers: Callers

    async def healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(self, _request: web.Request) -> web.Response:
        """Ready once Envoy holds a first snapshot.

        A lost API server is reported, but alone it does not make the gateway unready. All gateway pods lose it
        together, and all would leave service although they still know where to send requests. The pod becomes unready
        if another gateway pod has reached a later epoch meanwhile: then only this one is cut off.
        """
        control, ads = self.control, self.ads
        reach, now = control.placement.reach, control.now()
        behind = control.behind if reach.stale else []
        # Without the keys it would refuse callers whom another gateway pod lets in.
        keys = control.gate is None or control.gate.keys.synced
        ready = ads.connected and control.started and keys and not behind
        body = {
            "ready": ready,
            "synced": control.synced,
            "connected": ads.connected,
            "acknowledged": ads.acknowledged_generation,
            "watch_staleness_seconds": round(reach.seconds(now), 1),
            "behind": behind,
            "keys": keys,
        }
        return _json(body, 200 if ready else 503)

    async def state(self, request: web.Request) -> web.Response:
        self.callers.meet(request.headers.get("Authorization"))
        return _json(describe(self.control, self.ads))

    async def revisions(self, request: web.Request) -> web.Response:
        key = f"{request.match_info['namespace']}/{request.match_info['name']}"
        known = list(self.control.placement.revisions(key))
        try:
            answer = await self.envoy.attempts(key, known)
        except EnvoyAway as error:
            return _json({"error": str(error)}, 503)
        for revision, replicas in self.control.placement.counted(key).items():
            if revision in answer["revisions"]:
                answer["revisions"][revision]["replicas"] = replicas
        return _json({**answer, "picker": self.demand.instance})

    async def demand_lines(self, request: web.Request) -> web.StreamResponse:
        self.callers.meet(request.headers.get("Authorization"))
        return await self.demand.handle(request)

    async def epoch(self, request: web.Request) -> web.Response:
        if refusal := await self.callers.refusal(request.headers.get("Authorization")):
            return _json({"error": refusal.message}, refusal.status)
        try:
            epochs = read_epochs(await request.read())
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        self.control.tell(epochs)
        return _json({"behind": self.control.behind})

    async def metrics(self, _request: web.Request) -> web.Response:
        await self.of_envoy.read(self.envoy)
        state = await in_pieces(registry_pieces(self.registry))
        requests = await requests_page(self.envoy, self.control.placement)
        return web.Response(body=(state + requests).encode(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def make_app(pages: Pages) -> web.Application:
    app = web.Application()
    app.on_shutdown.append(pages.demand.close)
    app.add_routes(
        [
            web.get("/healthz", pages.healthz),
            web.get("/readyz", pages.readyz),
            web.get("/state", pages.state),
            web.get("/revisions/{namespace}/{name}", pages.revisions),
            web.post("/epoch", pages.epoch),
            web.get("/demand", pages.demand_lines),
            web.get("/metrics", pages.metrics),
        ]
    )
    return app


def read_epochs(body: bytes) -> dict[str, int]:
    """The body of `POST /epoch`: endpoint key -> epoch. A ValueError says what it must be."""
    try:
        document = loads(body)
    except JSONDecodeError as error:
        raise ValueError(f"the body is not JSON: {error}") from None
    if not isinstance(document, dict) or not all(type(epoch) is int for epoch in document.values()):
        raise ValueError('the body is to be {"namespace/name": epoch}, with whole numbers')
    return document


def _json(body: object, status: int = 200) -> web.Response:
    return web.Response(body=dumps(body), status=status, content_type="application/json")
