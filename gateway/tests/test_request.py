"""What a path asks for."""

import pytest

from llmendpoint_gateway.core.request import Asked, ByModel, ByPath, GetModel, ListModels, Unknown, read_path


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
        ("GET", "/v1/chat/completions", Unknown()),
        ("POST", "/team-a/chat/v1/chat/completions", ByPath("team-a/chat", "/v1/chat/completions")),
        ("POST", "/team-a/chat/v1/completions?a=b/c", ByPath("team-a/chat", "/v1/completions?a=b/c")),
        ("GET", "/team-a/chat/v1/models", ByPath("team-a/chat", "/v1/models")),
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
