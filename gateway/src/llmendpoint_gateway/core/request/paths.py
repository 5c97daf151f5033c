"""What a request asks for, by its method and path. Only the paths of inference APIs pass."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote

API_PATHS = frozenset(
    f"/v1/{path}"
    for path in (
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "messages",
        "messages/count_tokens",
        "rerank",
        "score",
        "classify",
        "pooling",
        "moderations",
        "tokenize",
        "detokenize",
        "audio/speech",
        "audio/transcriptions",
        "audio/translations",
    )
)
"""The paths that engines offer to users, each with POST. Other paths of an engine, such as those that load adapters or
stop it, are for its operator. The gateway does not pass them unless the LLMRuntime declares them."""
PROMPT_PATHS = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"})
"""Those that generate. Engines compute the beginning of their prompts once, if it is the same."""
MOST_DECLARED, LONGEST_DECLARED = 16, 128
FORM = re.compile(r"(/[A-Za-z0-9]+([_.-][A-Za-z0-9]+)*)+")
OPERATORS_OWN = re.compile(
    r"(^|/)((un)?load(_[^/]*)?|(reset|flush|update|start|stop|abort|release|resume|pause)_[^/]*|metrics|health(z|_[^/]*)?|"
    r"readyz?|livez?|ping|state|epoch|demand|revisions|admin|shutdown|sleep|wake_up|is_sleeping|collective_rpc|"
    r"(get_)?server_info)(/|$)",
    re.IGNORECASE,
)
OF_AN_ENDPOINT = re.compile("/[^/]+/[^/]+/v1/")
"""The form of a path that may be declared, and two patterns of paths that may not; the last one names an endpoint. The
CRD has the same rules, but does not apply them to a status that is written by hand."""
MODELS = "/v1/models"
MOST_PATH = 2048
"""Characters of a path with its query, at most."""
PREFIX_PARTS = 4  # "", namespace, name, "v1/…"
SOCKET = "/v1/stream"
"""A WebSocket (RFC 6455): the handshake is a GET without a body."""
MODEL_HEADER = "x-llmendpoint-model"
"""Names the model of a WebSocket whose URL names none."""
READING = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class ByModel:
    """The body's `model` names the endpoint. `declared`: the path, if only endpoints whose runtime declares it take it;
    empty for the paths of every endpoint."""

    declared: str = ""


@dataclass(frozen=True, slots=True)
class ByPath:
    """The path names the endpoint. `path`: what the replica gets, with the query. `declared`: as above."""

    endpoint: str
    path: str
    declared: str = ""


@dataclass(frozen=True, slots=True)
class ListModels:
    """`GET /v1/models`."""


@dataclass(frozen=True, slots=True)
class GetModel:
    """`GET /v1/models/{name}`. The name may hold a slash, also as `%2F`, which is how SDKs send it."""

    name: str


@dataclass(frozen=True, slots=True)
class Socket:
    """A WebSocket. `endpoint`: the name in the path, or else in the query's `model`; empty if there is none. `path`: what the
    replica gets."""

    endpoint: str
    path: str


@dataclass(frozen=True, slots=True)
class NoUpgrade:
    """The path of a WebSocket, without the handshake of one."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The gateway has no such path."""


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """The path exists, for other methods."""

    allowed: str


@dataclass(frozen=True, slots=True)
class TooLong:
    """The path is longer than MOST_PATH."""


Asked = ByModel | ByPath | ListModels | GetModel | Socket | NoUpgrade | Unknown | WrongMethod | TooLong


def declared_paths(value: Any) -> frozenset[str]:
    """The paths of a status's list that may pass."""
    listed = value[:MOST_DECLARED] if isinstance(value, list) else []
    return frozenset(path for path in listed if isinstance(path, str) and _may_pass(path))


def _may_pass(path: str) -> bool:
    if len(path) > LONGEST_DECLARED or not FORM.fullmatch(path) or OPERATORS_OWN.search(path):
        return False
    return not OF_AN_ENDPOINT.match(path) and not _methods(path) and path != SOCKET


def read_path(method: str, target: str, declared: Collection[str] = ()) -> Asked:
    """`target`: the request's path with its query, as the client sent it. `declared`: the paths that any endpoint's
    runtime declares."""
    if method == "POST" and target in API_PATHS:
        return ByModel()  # the usual case
    if len(target) > MOST_PATH:
        return TooLong()
    path, mark, query = target.partition("?")
    if path in declared:
        return ByModel(path) if method == "POST" else _wrong(("POST",))
    if path == SOCKET:
        return _socket(method, _model_of(query), target)
    if path.startswith("/v1/"):
        return _of_all(method, path)
    parts = path.split("/", PREFIX_PARTS - 1)
    if len(parts) == PREFIX_PARTS and parts[1] and parts[2]:
        inner = f"/{parts[3]}"
        if inner == SOCKET:
            return _socket(method, f"{parts[1]}/{parts[2]}", inner + mark + query)
        extra = inner if inner in declared else ""
        if allowed := ("POST",) if extra else _methods(inner):
            endpoint = f"{parts[1]}/{parts[2]}"
            return ByPath(endpoint, inner + mark + query, extra) if method in allowed else _wrong(allowed)
    return Unknown()


def _socket(method: str, endpoint: str, path: str) -> Asked:
    return Socket(endpoint, path) if method == "GET" else _wrong(("GET",))


def _model_of(query: str) -> str:
    """The first `model` of a query, which has MOST_PATH characters at most."""
    return next((value for name, value in parse_qsl(query, errors="replace") if name == "model"), "")


def _of_all(method: str, path: str) -> Asked:
    """A path that names no endpoint."""
    allowed = _methods(path)
    if not allowed:
        return Unknown()
    if method not in allowed:
        return _wrong(allowed)
    if allowed is not READING:
        return ByModel()
    return ListModels() if path == MODELS else GetModel(unquote(path[len(MODELS) + 1 :]))


def _methods(path: str) -> tuple[str, ...]:
    """The methods of a path; empty if the path is not part of the API."""
    if path in API_PATHS:
        return ("POST",)
    model = path.removeprefix(f"{MODELS}/")
    return READING if path == MODELS or (model and model != path) else ()


def _wrong(allowed: tuple[str, ...]) -> WrongMethod:
    return WrongMethod(", ".join(allowed))
