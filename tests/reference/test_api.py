"""docs/reference/api.md: the page has every error of the gateway and of the engine, with its status."""

from __future__ import annotations

import inspect
import json
import re

from llmendpoint_gateway.core.envoy.local_replies import make_local_replies
from llmendpoint_gateway.core.envoy.routes import make_routes
from llmendpoint_gateway.core.request import refusals, replies
from llmendpoint_gateway.core.request.paths import Unknown
from llmendpoint_gateway.core.request.request import Body, Head
from llmendpoint_server import errors
from tests.reference.__main__ import PAGES

Error = tuple[int, str]

HEAD = Head("POST", "/x", Unknown(), 0)
OF_ENVOY = {400, 403, 404, 408, 413, 415, 431, 503, 504}
"""Statuses of the answers that Envoy makes by itself."""


def rows(before: str, after: str) -> list[list[str]]:
    """Of the table of errors between two texts of the page."""
    section = (PAGES / "api.md").read_text().partition(before)[2].partition(after)[0]
    lines = [line for line in section.splitlines() if re.match(r"\| \d", line)]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def shown(table: list[list[str]]) -> set[Error]:
    return {(int(row[0]), row[1].strip("`")) for row in table}


def of_the_picker() -> list[refusals.Rejected]:
    """Every refusal that the picker can answer."""
    return [
        refusals.unknown_model("x"), refusals.starting(), refusals.no_replica("a/b"), refusals.saturated("a/b"),
        refusals.queue_full("a/b", 1, None), refusals.circuit_open("a/b", 1.0), refusals.poisoned("a/b"),
        refusals.adapter_not_loaded("a/b", "c", awaited=False),
        refusals.no_valid_key(), refusals.keys_unread(), refusals.not_permitted(with_key=True),
        replies.unknown_path(HEAD), replies.wrong_method(HEAD, "GET"), replies.path_too_long(), replies.failed(),
        replies.no_model(HEAD._replace(encoded=True), Body(0, 0)), replies.no_model(HEAD._replace(media="text/plain"), Body(0, 0)),
        replies.no_model(HEAD, Body(0, 0, problem="You must")), replies.no_socket_model(), replies.no_upgrade(HEAD),
    ]  # fmt: skip


def of_envoy() -> set[str]:
    """The codes in Envoy's own answers."""
    texts = [mapper["body"]["inline_string"] for mapper in make_local_replies()["mappers"]]
    routes = json.dumps(make_routes("openai", large_apart=True))
    return {json.loads(text)["error"]["code"] for text in texts} | set(
        re.findall(r'\\"code\\": \\"(\w+)\\"', routes)
    )


def test_every_error_of_the_gateway_is_on_the_page_and_no_other() -> None:
    table = shown(rows("The gateway's errors:", "The bundled engine's errors:"))
    picker = {(rejected.status, rejected.code) for rejected in of_the_picker()}
    assert picker <= table
    others = table - picker
    assert {code for _, code in others} == of_envoy() - {code for _, code in picker}
    assert {status for status, _ in others} <= OF_ENVOY


def test_no_refusal_of_the_picker_is_forgotten_here() -> None:
    called = set(of_the_picker.__code__.co_names)
    for module in (refusals, replies):
        own = {
            name
            for name, item in vars(module).items()
            if inspect.isfunction(item) and item.__module__ == module.__name__
        }
        assert own - called <= {"error_body"}  # the shape, not a refusal


def test_the_page_says_retry_after_exactly_where_the_picker_sends_it() -> None:
    advice = {
        row[1].strip("`"): row[3] for row in rows("The gateway's errors:", "The bundled engine's errors:")
    }
    for rejected in of_the_picker():
        assert ("`Retry-After`" in advice[rejected.code]) is (rejected.retry_after is not None), rejected.code


def test_every_error_of_the_engine_is_on_the_page_and_no_other() -> None:
    kinds: list[type[errors.RequestError]] = [errors.RequestError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    made = {(kind.status, kind.code or "null") for kind in kinds[1:]} | {(500, "internal_error")}
    assert shown(rows("The bundled engine's errors:", "The [batch service]")) == made
