"""docs/contribute/contracts.md: `/revisions` of a gateway, of whatever version, and whatever it sends."""

from __future__ import annotations

from typing import Any

import pytest

from llmendpoint_operator.core.rollout.by_replica import MOST_REPLICAS
from llmendpoint_operator.core.rollout.measurements import Counts
from llmendpoint_operator.errors import Unanswered
from llmendpoint_operator.observe.counters import LONGEST_NAME, parse_counters

ONE = {"requests": 4, "errors": 1}


def page(replicas: Any, **more: Any) -> Any:
    return {"instance": "i", "picker": "p", "revisions": {"r1": {**ONE, "replicas": replicas}}, **more}


def test_counters_by_revision_and_by_replica_are_read() -> None:
    found = parse_counters(
        page({"chat-a": {"requests": 3, "errors": 1}, "chat-b": {"requests": 1, "errors": 0}})
    )
    assert (found.instance, found.picker) == ("i", "p")
    assert found.counts == {"r1": Counts(4, 1)}
    assert found.replicas == {"r1": {"chat-a": Counts(3, 1), "chat-b": Counts(1, 0)}}


@pytest.mark.parametrize(
    "older",
    [
        {"instance": "i", "revisions": {"r1": ONE}},
        {
            "instance": "i",
            "revisions": {"r1": {**ONE, "replicas": {"chat-a": ONE}}},
        },  # since when is not said
        page({}, picker=None),
    ],
)
def test_a_gateway_that_does_not_count_by_replica_is_accepted(older: dict[str, Any]) -> None:
    found = parse_counters(older)
    assert (found.counts, found.replicas) == ({"r1": Counts(4, 1)}, None)


def test_a_revision_without_replicas_has_none() -> None:
    assert parse_counters({"instance": "i", "picker": "p", "revisions": {"r1": ONE}}).replicas == {"r1": {}}


def test_the_same_replicas_are_read_every_time_and_no_more_than_a_gateway_may_tell() -> None:
    pods = {f"chat-{number:03}": ONE for number in reversed(range(2 * MOST_REPLICAS))}
    replicas = parse_counters(page(pods)).replicas
    assert replicas is not None
    assert list(replicas["r1"]) == sorted(pods)[:MOST_REPLICAS]


@pytest.mark.parametrize(
    "replicas",
    [
        {"a": {"requests": -1, "errors": 0}},
        {"a": {"requests": 1e300, "errors": 0}},
        {"a": {"requests": "nan", "errors": 0}},
        {"a": {"requests": 1}},
        {"a": None},
        ["a"],
        "a",
        {"a" * (LONGEST_NAME + 1): ONE},
    ],
)
def test_what_no_gateway_sends_is_no_answer(replicas: Any) -> None:
    with pytest.raises(Unanswered, match="/revisions is not as expected"):
        parse_counters(page(replicas))
