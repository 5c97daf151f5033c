"""The two ports: the API, and health and metrics."""

from collections.abc import Callable

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from llmendpoint_batch.api.answers import errors
from llmendpoint_batch.api.batches import Batches
from llmendpoint_batch.api.files import Files
from llmendpoint_batch.api.receiving import Receiver
from llmendpoint_batch.api.responses import Responses
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.api.upload_parts import UploadParts
from llmendpoint_batch.api.uploads import Uploads
from llmendpoint_batch.core.bounds import BODY_BYTES
from llmendpoint_batch.metrics import Metrics


def make_api(service: Service) -> web.Application:
    app = web.Application(middlewares=[errors], client_max_size=BODY_BYTES)
    receiver = Receiver(service)
    uploads, files, batches = Uploads(service, receiver), Files(service), Batches(service)
    parts = UploadParts(service, receiver)
    responses = Responses(service)
    app.add_routes(
        [
            web.post("/v1/files", uploads.create),
            web.get("/v1/files", files.list),
            web.get("/v1/files/{id}", files.get),
            web.get("/v1/files/{id}/content", files.content),
            web.delete("/v1/files/{id}", files.delete),
            web.post("/v1/uploads", parts.create),
            web.post("/v1/uploads/{id}/parts", parts.add),
            web.post("/v1/uploads/{id}/complete", parts.complete),
            web.post("/v1/uploads/{id}/cancel", parts.cancel),
            web.post("/v1/batches", batches.create),
            web.get("/v1/batches", batches.list),
            web.get("/v1/batches/{id}", batches.get),
            web.post("/v1/batches/{id}/cancel", batches.cancel),
            web.post("/v1/responses", responses.create),
            web.get("/v1/responses/{id}", responses.get),
            web.delete("/v1/responses/{id}", responses.delete),
            web.post("/v1/responses/{id}/cancel", responses.cancel),
            web.get("/v1/responses/{id}/input_items", responses.input_items),
        ]
    )
    return app


def make_state(metrics: Metrics, not_ready: Callable[[], str]) -> web.Application:
    """`not_ready`: why no request can be served now; empty if they can be."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        told = not_ready()
        return web.Response(text=f"{told or 'ok'}\n", status=503 if told else 200)

    async def shown(_request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", shown)])
    return app
