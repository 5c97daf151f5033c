"""docs/api.md: `/openapi.json` is true: what it allows never ends in a 5xx, and what is answered has the shape that it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import httpx
import jsonschema
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.routing import Route

from llmendpoint_server.api.app import make_app
from server.tests.api.over_http import ASK, COMPLETE
from server.tests.server_process import ServerProcess

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 40
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def document(http: httpx.Client) -> Any:
    return http.get("/openapi.json").json()


@pytest.mark.parametrize(
    ("path", "method"),
    [
        (CHAT, "POST"),
        (TEXT, "POST"),
        ("/v1/tokenize", "POST"),
        ("/v1/detokenize", "POST"),
        ("/v1/models/{name}", "GET"),
        ("/v1/models", "GET"),
        ("/ready", "GET"),
        ("/health", "GET"),
        ("/load", "GET"),
        ("/version", "GET"),
    ],
)
def test_what_the_document_allows_never_ends_in_a_5xx_or_in_another_shape(
    fake_server: ServerProcess, document: Any, path: str, method: str
) -> None:
    operation = schemathesis.openapi.from_dict(document)[path][method]

    @settings(
        max_examples=EXAMPLES, deadline=None, phases=[Phase.generate], database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def examine(case: Any) -> None:
        if isinstance(case.body, dict):  # otherwise nearly all would ask for a model that is not there
            case.body |= {"model": "chat"} | ({"max_tokens": 3} if path in (CHAT, TEXT) else {})
        case.call_and_validate(base_url=fake_server.url, checks=CHECKS, timeout=30)

    examine()
    assert httpx.get(fake_server.url + "/load").json()["running"] == 0


ANSWERS = [
    (CHAT, ASK),
    (
        CHAT,
        ASK | {"n": 2, "logprobs": True, "top_logprobs": 2, "return_token_ids": True, "prompt_logprobs": 1},
    ),
    (TEXT, COMPLETE),
    (TEXT, COMPLETE | {"echo": True, "logprobs": 2, "prompt": ["a b", "c"], "return_token_ids": True}),
    (TEXT, COMPLETE | {"prompt_logprobs": 0, "stop": "t"}),
]


@pytest.mark.parametrize(("path", "body"), ANSWERS)
def test_bodies_and_their_answers_have_the_shapes_of_the_document(
    http: httpx.Client, document: Any, path: str, body: dict[str, Any]
) -> None:
    operation = document["paths"][path]["post"]
    asked = operation["requestBody"]["content"]["application/json"]["schema"]
    shown = operation["responses"]["200"]["content"]["application/json"]["schema"]
    for schema, value in ((asked, body), (shown, http.post(path, json=body).json())):
        jsonschema.validate(value, schema | {"components": document["components"]})


def test_a_field_that_is_wrong_is_wrong_by_the_document_too(document: Any) -> None:
    schema = {"$ref": "#/components/schemas/ChatBody", "components": document["components"]}
    for change in (
        {"n": 0},
        {"temperature": 3},
        {"colour": "red"},
        {"messages": []},
        {"use_beam_search": True},
    ):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(ASK | change, schema)


def test_every_route_is_in_the_document(document: Any) -> None:
    service: Any = SimpleNamespace(version="1", served_names=(), metrics=None, engine=None)
    paths = {
        route.path.replace(":path", "") for route in make_app(service).routes if isinstance(route, Route)
    }
    assert paths - {"/openapi.json"} == set(document["paths"])
