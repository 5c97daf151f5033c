"""docs/concepts/gateway.md: the paths of inference APIs and those that an LLMRuntime declares pass, and no others."""

import pytest

from llmendpoint_gateway.core.request.paths import (
    API_PATHS,
    LONGEST_DECLARED,
    MOST_DECLARED,
    MOST_PATH,
    Asked,
    ByModel,
    ByPath,
    GetModel,
    ListModels,
    Socket,
    TooLong,
    Unknown,
    WrongMethod,
    declared_paths,
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
        ("GET", "/v1/stream", Socket("", "/v1/stream")),
        ("GET", "/v1/stream?model=a/b", Socket("a/b", "/v1/stream?model=a/b")),
        ("GET", "/v1/stream?x=1&model=a%2Fb&model=c", Socket("a/b", "/v1/stream?x=1&model=a%2Fb&model=c")),
        ("GET", "/v1/stream?model=%ff", Socket("\ufffd", "/v1/stream?model=%ff")),
        ("GET", "/team-a/chat/v1/stream?model=x", Socket("team-a/chat", "/v1/stream?model=x")),
        ("POST", "/v1/stream", WrongMethod("GET")),
        ("POST", "/team-a/chat/v1/stream", WrongMethod("GET")),
        ("GET", "/v1/stream/", Unknown()),
        ("GET", "/v1/stream?model=" + "x" * MOST_PATH, TooLong()),
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


DECLARED = frozenset({"/pooling", "/v1/extra", "/inference/v1/generate"})


@pytest.mark.parametrize(
    ("method", "path", "asked"),
    [
        ("POST", "/pooling", ByModel("/pooling")),
        ("POST", "/pooling?a=/b/c", ByModel("/pooling")),
        ("POST", "/v1/extra", ByModel("/v1/extra")),
        ("POST", "/inference/v1/generate", ByModel("/inference/v1/generate")),
        ("POST", "/team/chat/pooling?a=b", ByPath("team/chat", "/pooling?a=b", "/pooling")),
        ("POST", "/team/chat/v1/extra", ByPath("team/chat", "/v1/extra", "/v1/extra")),
        ("GET", "/pooling", WrongMethod("POST")),
        ("GET", "/team/chat/pooling", WrongMethod("POST")),
        ("POST", "/pooling/", Unknown()),
        ("POST", "/pooling/x", Unknown()),
        ("POST", "/team/chat/pooling/x", Unknown()),
        ("POST", "/v1/chat/completions", ByModel()),
        ("POST", "/team/chat/v1/completions", ByPath("team/chat", "/v1/completions")),
        ("GET", "/v1/models/extra", GetModel("extra")),
    ],
)
def test_a_path_that_a_runtime_declares_passes_as_it_is(method: str, path: str, asked: Asked) -> None:
    assert read_path(method, path, DECLARED) == asked


@pytest.mark.parametrize(
    "path",
    [
        "/metrics", "/Metrics", "/load", "/health", "/health_generate", "/state", "/epoch", "/demand", "/revisions", "/ready",
        "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/load_model/x", "/reset_prefix_cache", "/start_profile",
        "/sleep", "/v1/models", "/v1/stream", "/v1/models/x", "/v1/chat/completions", "/a/../b", "/..", "/a..b", "/%2e%2e/load", "/a?b",
        "/a/", "//a", "/", "", "pooling", "/a b", "/a\n", "/ä", "/" + "a" * LONGEST_DECLARED, 7, None,
        "/team/chat/v1/completions", "/team/chat/v1/models/x", "/team/chat/v1/extra", "/v1/extra/v1/x",
    ],
)  # fmt: skip
def test_nothing_that_is_an_engines_operators_or_another_endpoints_or_of_another_form_can_be_declared(
    path: object,
) -> None:
    assert declared_paths([path, "/pooling"]) == {"/pooling"}


def test_no_more_paths_are_declared_than_the_crd_takes_and_what_is_no_list_declares_none() -> None:
    assert len(declared_paths([f"/p{n}" for n in range(100)])) == MOST_DECLARED
    assert (
        declared_paths({"/pooling": 1}) == declared_paths("/pooling") == declared_paths(None) == frozenset()
    )
