"""The HTTP surface: every route, and the shape of every error."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from llmendpoint_server.api.adapter_routes import AdapterRoutes, shown
from llmendpoint_server.api.anthropic.routes import Messages, with_its_errors
from llmendpoint_server.api.completions import Completions
from llmendpoint_server.api.disconnect import ClientGone
from llmendpoint_server.api.embeddings import Embeddings
from llmendpoint_server.api.interfaces import Engine
from llmendpoint_server.api.off_loop import OffLoop
from llmendpoint_server.api.openai_responses.bodies import ResponsesBody
from llmendpoint_server.api.openai_responses.shapes import PREFIX, ResponseShape, with_its_names
from llmendpoint_server.api.openapi import make_document
from llmendpoint_server.api.preprocess import Preprocessor
from llmendpoint_server.api.ranking import Ranking
from llmendpoint_server.api.request_log import RequestLog
from llmendpoint_server.api.responses import error_body, error_response, json_response
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.tasks import Handler, for_tasks
from llmendpoint_server.api.tokenization import Tokenization
from llmendpoint_server.api.web_socket import PATH as SOCKET_PATH
from llmendpoint_server.api.web_socket import not_over_socket, stream
from llmendpoint_server.errors import RequestError

OTHERS = {
    "/v1/audio": "This server reads and writes text alone, no audio",
    "/v1/images": "This server reads and writes text alone, no images",
    **dict.fromkeys(
        ("/v1/files", "/v1/uploads", "/v1/batches"),
        "This server keeps no files and batches; the batch service of the chart does (batch.enabled)",
    ),
    "/v1/responses/": "This server stores no responses; the batch service of the chart does (batch.enabled)",
    "/v1/conversations": "This server stores no conversations",
    "/v1/moderations": "This server judges no texts; a model that scores pairs has /v1/score",
    "/v1/classify": "This server serves no model of several labels; one that scores pairs has /v1/score",
}
"""What paths of OpenAI and vLLM are for that are not this server's."""
STARTING = ("loading", "warming")
LONGEST_WAIT_S = 10.0
LOOK_EVERY_S = 0.02
"""How often a probe that waits for the end of a load looks again."""


def status_routes(service: Service) -> list[Route]:
    engine = service.engine

    def failed(why: str) -> Response:
        return json_response({"status": "failed", "detail": why}, 503)

    async def health(_: Request) -> Response:
        if (failure := engine.failure()) is not None:
            return failed(failure)
        return json_response({"status": "ok", "detail": engine.detail})

    async def ready(request: Request) -> Response:
        await started(engine, read_wait(request))
        if (failure := engine.failure()) is not None:
            return failed(failure)
        return json_response(
            {"status": engine.state, "detail": engine.detail}, 200 if engine.state == "ready" else 503
        )

    async def load(_: Request) -> Response:
        stats, loaded = engine.stats, engine.loaded
        return json_response({
            "waiting": stats.waiting, "running": stats.running, "outstanding_tokens": stats.outstanding_tokens,
            "kv_usage": stats.kv_usage, "max_num_seqs": loaded.max_num_seqs if loaded else 0, "instance": service.instance,
            "adapters": service.adapter_names,
        })  # fmt: skip

    async def metrics(_: Request) -> Response:
        return Response(service.metrics.page(), media_type="text/plain; version=0.0.4; charset=utf-8")

    def model(name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": service.started,
            "owned_by": "llmendpoint",
            "max_model_len": engine.loaded.max_model_len if engine.loaded else None,
        }

    def adapters() -> list[dict[str, Any]]:
        known = service.adapters.known if service.adapters is not None else {}
        return [shown(known[name], service) for name in sorted(known)]

    async def models(_: Request) -> Response:
        data = [*map(model, service.served_names), *adapters()]
        return json_response({"object": "list", "data": data})

    async def one_model(request: Request) -> Response:
        name = request.path_params["name"]  # may hold slashes, which SDKs send as %2F
        adapter = service.adapter_of(name)
        return json_response(model(name) if adapter is None else shown(adapter, service))

    async def version(_: Request) -> Response:
        return json_response({"version": service.version})

    paths = {
        "/health": health,
        "/ready": ready,
        "/load": load,
        "/metrics": metrics,
        "/v1/models": models,
        "/v1/models/{name:path}": one_model,
        "/version": version,
    }
    return [Route(path, handler) for path, handler in paths.items()]


def read_wait(request: Request) -> float:
    """Seconds of `?wait=`; 0 without it. A bad value raises a 400 that says what is allowed."""
    try:
        seconds = float(request.query_params.get("wait", "0"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_WAIT_S:
        raise HTTPException(400, f"`wait` is a number of seconds from 0 to {LONGEST_WAIT_S:g}")
    return seconds


async def started(engine: Engine, seconds: float) -> None:
    """Wait until the engine no longer loads or warms up, but at most `seconds`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while engine.state in STARTING and engine.failure() is None and loop.time() < until:  # noqa: ASYNC110  # two engines, no event in common
        await asyncio.sleep(LOOK_EVERY_S)


async def on_request_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestError)
    return error_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path
    other = next((what for start, what in OTHERS.items() if path.startswith(start)), None)
    why = f"{other}." if other and error.status_code == 404 else error.detail
    message = f"{request.method} {path}: {why}"
    return json_response(
        error_body(message, "invalid_request_error"), error.status_code, dict(error.headers or {})
    )


async def on_client_gone(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # for the log only: the caller is gone


def _document_route(routes: list[Route], version: str) -> Route:
    made: list[bytes] = []

    async def document(_: Request) -> Response:
        if not made:  # with the first question: a server starts without it
            made.append(await asyncio.to_thread(make_document, routes, version))
        return Response(made[0], media_type="application/json")

    return Route("/openapi.json", document)


def post_routes(service: Service) -> dict[str, Handler]:
    off_loop = OffLoop()
    preprocessor, tokenization = Preprocessor(service, off_loop), Tokenization(service, off_loop)
    completions = Completions(service, preprocessor)
    messages = Messages(service, completions, preprocessor)
    embeddings, ranking = Embeddings(service, off_loop), Ranking(service, off_loop)
    responses = partial(completions.complete, kind=ResponsesBody, make_shape=ResponseShape, prefix=PREFIX)
    rank = partial(for_tasks, service, ("score", "embed"))
    generate, embed = partial(for_tasks, service, ("generate",)), partial(for_tasks, service, ("embed",))
    adapters = AdapterRoutes(service, off_loop)
    posts = {
        "/v1/chat/completions": generate(completions.chat),
        "/v1/completions": generate(completions.text),
        "/v1/messages": with_its_errors(generate(messages.create)),
        "/v1/messages/count_tokens": with_its_errors(generate(messages.count)),
        "/v1/responses": with_its_names(generate(responses)),
        "/v1/embeddings": embed(embeddings.create),
        "/v2/rerank": rank(ranking.rerank),
        "/v1/load_lora_adapter": not_over_socket(adapters.load),
        "/v1/unload_lora_adapter": not_over_socket(adapters.unload),
    }
    for prefix in ("", "/v1"):  # the first is vLLM's, the second passes the gateway
        posts |= {
            f"{prefix}/tokenize": tokenization.tokenize,
            f"{prefix}/detokenize": tokenization.detokenize,
            f"{prefix}/rerank": rank(ranking.rerank),
            f"{prefix}/score": rank(ranking.score),
        }
    return posts


def make_app(service: Service) -> FastAPI:
    """`Completions` reads bodies itself, because OpenAI's errors have a shape of their own."""
    routes = [Route(path, handler, methods=["POST"]) for path, handler in post_routes(service).items()]
    routes += status_routes(service)
    return FastAPI(
        openapi_url=None,
        routes=[*routes, _document_route(routes, service.version), WebSocketRoute(SOCKET_PATH, stream)],
        exception_handlers={
            RequestError: on_request_error,
            HTTPException: on_http_exception,
            ClientGone: on_client_gone,
        },
        middleware=[Middleware(RequestLog, metrics=service.metrics, traces=service.traces)],
    )
