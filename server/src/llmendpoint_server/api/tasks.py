"""Which routes a model answers: one that embeds generates no text, and the other way round."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from llmendpoint_server.api.service import Service
from llmendpoint_server.errors import InvalidRequest, Unavailable
from llmendpoint_server.protocol import Loaded, Task

Handler = Callable[[Request], Awaitable[Response]]
_DOES: dict[Task, str] = {
    "generate": "generates text: call /v1/chat/completions or /v1/completions",
    "embed": "makes embeddings: call /v1/embeddings, /v1/rerank or /v1/score",
    "score": "scores pairs of texts: call /v1/rerank or /v1/score",
}


def ready(service: Service) -> Loaded:
    """What is loaded. Raises Unavailable if this replica takes no requests."""
    engine = service.engine
    if engine.state != "ready" or engine.loaded is None:
        raise Unavailable(f"This replica is {engine.state}: {engine.detail}. Try again.", retry_after=1.0)
    return engine.loaded


def for_tasks(service: Service, tasks: tuple[Task, ...], handler: Handler) -> Handler:
    """`handler`, for models of these tasks; others get a 400 that says what they do. Before a model is loaded it is not known what
    it does, and the handler refuses."""

    async def handle(request: Request) -> Response:
        loaded = service.engine.loaded
        if loaded is not None and loaded.task not in tasks:
            name = service.served_names[0]
            raise InvalidRequest(
                f"The model {name!r} {_DOES[loaded.task]}. It does not answer {request.url.path}.",
                param="model",
            )
        return await handler(request)

    return handle
