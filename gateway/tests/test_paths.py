"""What a path asks for."""

import pytest

from llmendpoint_gateway.core.paths import (
    API_PATHS,
    MOST_PATH,
    Asked,
    ByModel,
    ByPath,
    GetModel,
    ListModels,
    TooLong,
    Unknown,
    WrongMethod,
    read_path,
)


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("POST", "/v1/chat/completions", ByModel()),
        ("POST", "/v1/chat/completions?x=/a/b", ByModel()),
        ("POST", "/v1/embeddings", ByModel()),
        ("GET", "/v1/models", ListModels()),
        ("GET", "/v1/models?limit=1", ListModels()),
        ("GET", "/v1/models/chat", GetModel("chat")),
        ("GET", "/v1/models/team-a/chat", GetModel("team-a/chat")),
        ("GET", "/v1/models/", Unknown()),
        ("GET", "/v1/models/team-a%2Fchat", GetModel("team-a/chat")),
        ("HEAD", "/v1/models", ListModels()),
        ("HEAD", "/v1/models/chat", GetModel("chat")),
        ("DELETE", "/v1/models/chat", WrongMethod("GET, HEAD")),
        ("POST", "/v1/models", WrongMethod("GET, HEAD")),
        ("GET", "/v1/chat/completions", WrongMethod("POST")),
        ("OPTIONS", "/v1/chat/completions", WrongMethod("POST")),
        ("DELETE", "/team-a/chat/v1/completions", WrongMethod("POST")),
        ("POST", "/v1/batches", Unknown()),
        ("POST", "/v1/files", Unknown()),
        ("POST", "/v1/load_lora_adapter", Unknown()),
        ("POST", "/v1/unload_lora_adapter?x=/v1/completions", Unknown()),
        ("POST", "/team-a/chat/v1/load_lora_adapter", Unknown()),
        ("POST", "/v1/chat/completions/", Unknown()),
        ("POST", "/v1/chat/completions?" + "x" * MOST_PATH, TooLong()),
        ("POST", "/v1/chat%2Fcompletions", Unknown()),
        ("POST", "/team-a/chat/v1/chat/completions", ByPath("team-a/chat", "/v1/chat/completions")),
        ("POST", "/team-a/chat/v1/completions?a=b/c", ByPath("team-a/chat", "/v1/completions?a=b/c")),
        ("GET", "/team-a/chat/v1/models", ByPath("team-a/chat", "/v1/models")),
        ("GET", "/team-a/chat/v1/models/x", ByPath("team-a/chat", "/v1/models/x")),
        ("POST", "/team-a/chat/v2/completions", Unknown()),
        ("POST", "/team-a/chat", Unknown()),
        ("POST", "//chat/v1/completions", Unknown()),
        ("GET", "/team-a/chat/metrics", Unknown()),
        ("GET", "/", Unknown()),
        ("GET", "", Unknown()),
    ],
)
def test_the_path_says_who_is_asked(method: str, path: str, asked: Asked) -> None:
    assert read_path(method, path) == asked


def test_no_path_that_an_engine_has_for_its_operator_is_the_apis() -> None:
    administrative = (
        "load",
        "reset",
        "sleep",
        "wake",
        "admin",
        "metrics",
        "weights",
        "profile",
        "adapter",
        "files",
    )
    assert not [path for path in API_PATHS if any(word in path for word in administrative)]
