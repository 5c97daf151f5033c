"""`/openapi.json`: made from the types that read bodies, and from the routes that there are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.routing import BaseRoute, Route

from llmendpoint_server.api.adapter_routes import LoadAdapterBody, UnloadAdapterBody
from llmendpoint_server.api.anthropic.bodies import CountBody, MessagesBody
from llmendpoint_server.api.embeddings import EmbeddingBody
from llmendpoint_server.api.explain import FORMS
from llmendpoint_server.api.openapi_answers import ANSWERS, Schema, ref
from llmendpoint_server.api.openapi_types import Components
from llmendpoint_server.api.ranking import RerankBody, ScoreBody
from llmendpoint_server.api.schemas import UNSUPPORTED, ChatBody, CompletionBody, GenerationBody
from llmendpoint_server.api.tokenization import DetokenizeBody, TokenizeBody

REFUSALS = {
    400: "The body, a field or a header is wrong; `param` names it.",
    404: "This server has no model of this name.",
    408: "The body did not arrive in time.",
    409: "There are as many adapters as --max-loras allows.",
    413: "The body is too large.",
    429: "The queue is full, or the deadline cannot be met. Retry-After says when to come again.",
    500: "The engine failed on this request.",
    503: "This replica takes no requests now; another one may.",
}
COUNT_TOKENS = "/v1/messages/count_tokens"
LOAD_ADAPTER, UNLOAD_ADAPTER = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
BODIES: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/tokenize": TokenizeBody,
    "/v1/tokenize": TokenizeBody,
    "/detokenize": DetokenizeBody,
    "/v1/detokenize": DetokenizeBody,
    "/v1/messages": MessagesBody,
    COUNT_TOKENS: CountBody,
    "/v1/embeddings": EmbeddingBody,
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), RerankBody),
    **dict.fromkeys(("/score", "/v1/score"), ScoreBody),
    LOAD_ADAPTER: LoadAdapterBody,
    UNLOAD_ADAPTER: UnloadAdapterBody,
}
"""The type that reads each route's body. A route that is not here has a body that is not described."""
SHOWN = {
    "/v1/chat/completions": "ChatCompletion",
    "/v1/completions": "Completion",
    "/tokenize": "Tokens",
    "/v1/tokenize": "Tokens",
    "/detokenize": "Text",
    "/v1/detokenize": "Text",
    "/v1/messages": "AnthropicAnswer",
    COUNT_TOKENS: "InputTokens",
    "/v1/embeddings": "Embeddings",
    **dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), "Ranking"),
    **dict.fromkeys(("/score", "/v1/score"), "Scores"),
    **dict.fromkeys((LOAD_ADAPTER, UNLOAD_ADAPTER), "Model"),
    "/v1/models": "Models",
    "/v1/models/{name}": "Model",
    "/health": "Status",
    "/ready": "Status",
    "/load": "Load",
    "/version": "Version",
}
"""The answer of each route, of those in `openapi_answers`."""
STREAMED = ("/v1/chat/completions", "/v1/completions", "/v1/messages")
ANTHROPIC = ("/v1/messages", COUNT_TOKENS)
_CONVERTER = re.compile(r"\{(\w+)(?::\w+)?\}")


def make_document(routes: Iterable[BaseRoute], version: str) -> bytes:
    """The document as JSON."""
    components = Components()
    components.add(BODIES.values())
    for kind in (ChatBody, CompletionBody):
        _describe(kind, components.schemas[kind.__name__]["properties"])
    paths = {
        _CONVERTER.sub(r"{\1}", route.path): _operations(route)
        for route in routes
        if isinstance(route, Route)
    }
    document = {
        "openapi": "3.1.0",
        "info": {"title": "llmendpoint-server", "version": version},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": components.schemas | ANSWERS},
    }
    return msgspec.json.encode(document)


def _describe(kind: type[GenerationBody], properties: dict[str, Schema]) -> None:
    """Say what each field must be, and which values a field takes that is not implemented."""
    raw = {field.name for field in msgspec.structs.fields(kind) if field.type is msgspec.Raw}
    for name, schema in properties.items():
        if name in UNSUPPORTED and name in raw and name not in kind.served:
            schema.clear()
            schema["enum"] = [None, *UNSUPPORTED[name]]
            schema["description"] = "Not supported."
        elif name in FORMS:
            schema["description"] = f"It must be {FORMS[name]}."


def _operations(route: Route) -> dict[str, Any]:
    path = _CONVERTER.sub(r"{\1}", route.path)
    methods = sorted((route.methods or set()) - {"HEAD"})
    return {method.lower(): _operation(path, method) for method in methods}


def _operation(path: str, method: str) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": f"{method.lower()} {path}"}
    names = [*_CONVERTER.finditer(path)]
    if names:
        operation["parameters"] = [
            {"name": found[1], "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for found in names
        ]
    if path == "/ready":
        wait = {"type": "number", "minimum": 0, "maximum": 10}
        operation["parameters"] = [{"name": "wait", "in": "query", "schema": wait}]
    if method == "POST":
        body: Schema = ref(BODIES[path].__name__) if path in BODIES else {"type": "object"}
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    operation["responses"] = _responses(path, method)
    return operation


def _responses(path: str, method: str) -> dict[str, Any]:
    if path == "/metrics":
        return {"200": {"description": "Prometheus metrics.", "content": {"text/plain": {}}}}
    answer: Schema = ref(SHOWN[path]) if path in SHOWN else {}
    content: dict[str, Any] = {"application/json": {"schema": answer}}
    if path in STREAMED:
        content["text/event-stream"] = {}
    responses: dict[str, Any] = {"200": {"description": "The answer.", "content": content}}
    if path in ("/health", "/ready"):
        responses["503"] = {
            "description": "It is not.", "content": {"application/json": {"schema": ref("Status")}}
        }  # fmt: skip
    refusals = (
        [status for status in REFUSALS if status != 409 or path == LOAD_ADAPTER]
        if method == "POST"
        else [404]
        if "{" in path
        else []
    )
    if path == "/ready":
        refusals = [400]
    for status in refusals:
        error = {"application/json": {"schema": ref("AnthropicError" if path in ANTHROPIC else "Error")}}
        responses[str(status)] = {"description": REFUSALS[status], "content": error}
    return responses
