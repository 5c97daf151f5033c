"""What a request asks for, by its path alone."""

from dataclasses import dataclass

PREFIX_PARTS = 4  # "", namespace, name, "v1/…"


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
    """`GET /v1/models/{name}`; the name may hold a slash."""

    name: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """No such path here."""


Asked = ByModel | ByPath | ListModels | GetModel | Unknown


def read_path(method: str, target: str) -> Asked:
    """`target` is the request's path with its query, as the client sent it."""
    path = target.partition("?")[0]
    if path.startswith("/v1/"):
        if method != "GET":
            return ByModel()
        if path == "/v1/models":
            return ListModels()
        name = path.removeprefix("/v1/models/")
        return GetModel(name) if name and name != path else Unknown()
    parts = target.split("/", PREFIX_PARTS - 1)
    if len(parts) == PREFIX_PARTS and parts[1] and parts[2] and parts[3].startswith("v1/"):
        return ByPath(f"{parts[1]}/{parts[2]}", f"/{parts[3]}")
    return Unknown()
