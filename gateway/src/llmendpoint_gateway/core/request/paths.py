"""What a request asks for, by its method and path. Only the paths of inference APIs pass."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

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
"""What engines answer to users, each with POST. Other paths of an engine, such as those that load adapters or stop it, are
its operator's: they are not reached through the gateway, unless its LLMRuntime declares them."""
MOST_DECLARED, LONGEST_DECLARED = 16, 128
FORM = re.compile(r"(/[A-Za-z0-9]+([_.-][A-Za-z0-9]+)*)+")
OPERATORS_OWN = re.compile(
    r"(^|/)((un)?load(_[^/]*)?|(reset|flush|update|start|stop|abort|release|resume|pause)_[^/]*|metrics|health(z|_[^/]*)?|"
    r"readyz?|livez?|ping|state|epoch|demand|revisions|admin|shutdown|sleep|wake_up|is_sleeping|collective_rpc|"
    r"(get_)?server_info)(/|$)",
    re.IGNORECASE,
)
OF_AN_ENDPOINT = re.compile("/[^/]+/[^/]+/v1/")
"""The form of a path that may be declared, and paths that may not; the last names an endpoint in the path. The CRD has the same rules, but does not apply them to a
status that is written by hand."""
MODELS = "/v1/models"
MOST_PATH = 2048
"""Characters of a path with its query."""
PREFIX_PARTS = 4  # "", namespace, name, "v1/…"
READING = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class ByModel:
    """The endpoint is named by the body's `model`. `declared`: the path, when only endpoints whose runtime declares it take
    it; empty for the paths of every endpoint."""

    declared: str = ""


@dataclass(frozen=True, slots=True)
class ByPath:
    """The endpoint is named by the path; `path` is what its replica is to see, with the query; `declared` as above."""

    endpoint: str
    path: str
    declared: str = ""


@dataclass(frozen=True, slots=True)
class ListModels:
    """`GET /v1/models`."""


@dataclass(frozen=True, slots=True)
class GetModel:
    """`GET /v1/models/{name}`; the name may hold a slash, also as `%2F`, which is how SDKs send it."""

    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No such path here."""


@dataclass(frozen=True, slots=True)
class WrongMethod:
    """The path is there, for other methods."""

    allowed: str


@dataclass(frozen=True, slots=True)
class TooLong:
    """Longer than any path of the API."""


Asked = ByModel | ByPath | ListModels | GetModel | Unknown | WrongMethod | TooLong


def declared_paths(value: Any) -> frozenset[str]:
    """What of a status's list of paths may pass."""
    listed = value[:MOST_DECLARED] if isinstance(value, list) else []
    return frozenset(path for path in listed if isinstance(path, str) and _may_pass(path))


def _may_pass(path: str) -> bool:
    if len(path) > LONGEST_DECLARED or not FORM.fullmatch(path) or OPERATORS_OWN.search(path):
        return False
    return not OF_AN_ENDPOINT.match(path) and not _methods(path)


def read_path(method: str, target: str, declared: Collection[str] = ()) -> Asked:
    """`target` is the request's path with its query, as the client sent it; `declared`: the paths that any endpoint's
    runtime declares."""
    if method == "POST" and target in API_PATHS:
        return ByModel()  # the usual case
    if len(target) > MOST_PATH:
        return TooLong()
    path, mark, query = target.partition("?")
    if path in declared:
        return ByModel(path) if method == "POST" else _wrong(("POST",))
    if path.startswith("/v1/"):
        return _of_all(method, path)
    parts = path.split("/", PREFIX_PARTS - 1)
    if len(parts) == PREFIX_PARTS and parts[1] and parts[2]:
        inner = f"/{parts[3]}"
        extra = inner if inner in declared else ""
        if allowed := ("POST",) if extra else _methods(inner):
            endpoint = f"{parts[1]}/{parts[2]}"
            return ByPath(endpoint, inner + mark + query, extra) if method in allowed else _wrong(allowed)
    return Unknown()


def _of_all(method: str, path: str) -> Asked:
    """A path without an endpoint in it."""
    allowed = _methods(path)
    if not allowed:
        return Unknown()
    if method not in allowed:
        return _wrong(allowed)
    if allowed is not READING:
        return ByModel()
    return ListModels() if path == MODELS else GetModel(unquote(path[len(MODELS) + 1 :]))


def _methods(path: str) -> tuple[str, ...]:
    """That a path takes; none where it is not of the API."""
    if path in API_PATHS:
        return ("POST",)
    model = path.removeprefix(f"{MODELS}/")
    return READING if path == MODELS or (model and model != path) else ()


def _wrong(allowed: tuple[str, ...]) -> WrongMethod:
    return WrongMethod(", ".join(allowed))
