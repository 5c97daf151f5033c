"""docs/contribute/contracts.md: a request by annotation is read as it was written, or refused once with what to write."""

from __future__ import annotations

import json

import pytest

from llmendpoint_operator.core.endpoint.snapshot import Request
from llmendpoint_operator.gather import parse_request

from ..fake_cluster import FakeCluster


def test_a_request_is_read_as_it_was_written() -> None:
    text = json.dumps({"id": "r-1", "action": "promote", "revision": "7d9f8c6b54"})
    assert parse_request(text) == Request("r-1", "promote", "7d9f8c6b54")
    assert parse_request('{"id": "r-1", "action": "restart"}') == Request("r-1", "restart")
    assert parse_request(None) is None


@pytest.mark.parametrize(
    "text",
    ["", "promote", "[]", "{}", '{"id": 7, "action": "abort"}', '{"id": "", "action": "abort"}', '"x"'],
)
def test_one_that_cannot_be_read_is_refused_once_with_what_to_write(text: str) -> None:
    cluster = FakeCluster(request=parse_request(text))
    cluster.settle()
    answer = cluster.status["request"]
    assert answer["outcome"] == "Refused"
    assert '{"id": "<unique>", "action": "promote", "revision": "<hash>"}' in answer["message"]
    assert cluster.plan().steps == ()


def test_an_unknown_action_is_refused_with_those_that_there_are() -> None:
    cluster = FakeCluster(request=Request("r-1", "explode"))
    cluster.settle()
    assert cluster.status["request"] == {
        "id": "r-1", "action": "explode", "outcome": "Refused",
        "message": "'explode' is not one of promote, abort, undo, restart",
    }  # fmt: skip
