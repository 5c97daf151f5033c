"""What a request asks for, by its method and path. Only the paths of inference APIs pass."""

from dataclasses import dataclass
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
its operator's: they are not reached through the gateway."""
MODELS = "/v1/models"
MOST_PATH = 2048
"""Characters of a path with its query."""
PREFIX_PARTS = 4  # "", namespace, name, "v1/…"
READING = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class ByModel:
    """The endpoint is named by the body's `model`."""


@dataclass(frozen=True, slots=True)
class ByPath:
    """The endpoint is named by the path; `path` is what its replica is to see, with the query."""

    endpoint: str
    path: str


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


def read_path(method: str, target: str) -> Asked:
    """`target` is the request's path with its query, as the client sent it."""
    if method == "POST" and target in API_PATHS:
        return ByModel()  # the usual case
    if len(target) > MOST_PATH:
        return TooLong()
    path, mark, query = target.partition("?")
    if path.startswith("/v1/"):
        return _of_all(method, path)
    parts = path.split("/", PREFIX_PARTS - 1)
    if len(parts) == PREFIX_PARTS and parts[1] and parts[2]:
        inner = f"/{parts[3]}"
        if allowed := _methods(inner):
            endpoint = f"{parts[1]}/{parts[2]}"
            return ByPath(endpoint, inner + mark + query) if method in allowed else _wrong(allowed)
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
