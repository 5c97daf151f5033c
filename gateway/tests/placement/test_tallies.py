"""docs/contribute/contracts.md: what the picker counts by replica, of the pods that it knows and of no other."""

from dataclasses import replace
from typing import Any

import pytest

from gateway.tests.one_endpoint import (
    ADDRESSES,
    CHAT,
    REPLICAS,
    UNREACHABLE,
    Holding,
    parts_of,
    request_of,
    turn,
)
from llmendpoint_gateway.core.endpoint.objects import Replica, Slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.outcome.attempt import Attempt, Ended, Outcome
from llmendpoint_gateway.core.placement.pick import Picked
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.tallies import MOST_REPLICAS
from llmendpoint_gateway.core.request.request import Tag
from llmendpoint_gateway.serve.parts import Parts

FIRST, SECOND = ADDRESSES
CLUSTER = "a/chat/r1"


async def parts_with(replicas: Slice = REPLICAS) -> Parts:
    parts = parts_of(Holding())
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    parts.control.relisted(Kind.SLICE, {"a/s": replicas})
    await turn()
    return parts


def sent(placement: Placement, *addresses: str) -> Tag:
    """A request that is with the first of these replicas."""
    return placement.take(Picked("a/chat", CLUSTER, addresses), request_of(), 0.0).tag


def failed(tag: Tag, address: str = FIRST, *, retried: bool = False, again: bool = False) -> Attempt:
    return replace(UNREACHABLE, tag=tag, address=address, retried=retried, again=again, told=not retried)


def counted(parts: Parts) -> dict[str, tuple[int, int]]:
    found = parts.control.placement.counted("a/chat")["r1"]
    return {pod: (count["requests"], count["errors"]) for pod, count in found.items()}


@pytest.mark.parametrize("report_first", [True, False])
async def test_a_request_counts_for_its_replica_when_it_ends_and_a_failure_whenever_it_is_reported(
    report_first: bool,
) -> None:
    parts = await parts_with()
    tag = sent(parts.control.placement, FIRST)
    outcomes: list[Attempt | Ended] = [failed(tag), Ended(tag.ticket)]
    for outcome in outcomes if report_first else outcomes[::-1]:
        parts.outcomes.settle(outcome)
    assert counted(parts) == {FIRST: (1, 1), SECOND: (0, 0)}


async def test_a_retry_counts_at_both_replicas() -> None:
    parts = await parts_with()
    tag = sent(parts.control.placement, FIRST, SECOND)
    parts.outcomes.settle(failed(tag, retried=True))
    assert counted(parts) == {FIRST: (1, 1), SECOND: (0, 0)}
    parts.outcomes.settle(Ended(tag.ticket))
    assert counted(parts) == {FIRST: (1, 1), SECOND: (1, 0)}


async def test_a_retry_at_the_only_replica_counts_twice_there() -> None:
    parts = await parts_with()
    tag = sent(parts.control.placement, FIRST)
    parts.outcomes.settle(failed(tag, retried=True))
    parts.outcomes.settle(Ended(tag.ticket))
    parts.outcomes.settle(failed(tag, again=True))
    assert counted(parts)[FIRST] == (2, 2)


async def test_a_retry_that_is_over_before_the_report_of_the_first_attempt_counts_once() -> None:
    parts = await parts_with()
    tag = sent(parts.control.placement, FIRST, SECOND)
    parts.outcomes.settle(Ended(tag.ticket))
    parts.outcomes.settle(failed(tag, retried=True))
    parts.outcomes.settle(failed(tag, SECOND, again=True))
    assert counted(parts) == {FIRST: (1, 1), SECOND: (0, 0)}  # no errors without requests


@pytest.mark.parametrize(
    "report",
    [{"outcome": Outcome.ANSWERED}, {"outcome": None}, {"outcome": Outcome.TIMED_OUT, "over": False}],
)
async def test_what_is_no_failure_or_has_not_ended_is_no_error(report: dict[str, Any]) -> None:
    parts = await parts_with()
    tag = sent(parts.control.placement, FIRST)
    parts.outcomes.settle(replace(failed(tag), **report))
    parts.outcomes.settle(Ended(tag.ticket))
    assert counted(parts)[FIRST] == (1, 0)


async def test_a_pod_that_is_gone_has_no_counts_and_one_with_its_address_begins_at_0() -> None:
    parts = await parts_with()
    placement = parts.control.placement
    tags = [sent(placement, FIRST) for _ in range(2)]
    parts.outcomes.settle(Ended(tags[0].ticket))
    parts.control.applied(
        Kind.SLICE, "a/s", replace(REPLICAS, replicas=(Replica(FIRST, "new", True, False),))
    )
    await turn()
    assert counted(parts) == {"new": (0, 0)}
    parts.control.deleted(Kind.SLICE, "a/s")
    await turn()
    assert len(placement.tallies) == 0
    parts.outcomes.settle(Ended(tags[1].ticket))  # counted nowhere
    assert placement.counted("a/chat") == {}


async def test_a_pod_that_is_not_ready_any_more_keeps_its_counts() -> None:
    parts = await parts_with()
    parts.outcomes.settle(Ended(sent(parts.control.placement, FIRST).ticket))
    unready = tuple(replace(replica, ready=False) for replica in REPLICAS.replicas)
    parts.control.applied(Kind.SLICE, "a/s", replace(REPLICAS, replicas=unready))
    await turn()
    assert counted(parts) == {FIRST: (1, 0), SECOND: (0, 0)}


async def test_at_most_the_first_replicas_by_name_are_told() -> None:
    pods = [f"chat-{number:03}" for number in range(MOST_REPLICAS + 5)]
    replicas = tuple(
        Replica(f"10.0.1.{number}:8000", pod, True, False) for number, pod in enumerate(reversed(pods))
    )
    parts = await parts_with(replace(REPLICAS, replicas=replicas))
    assert list(counted(parts)) == pods[:MOST_REPLICAS]


async def test_counts_are_told_of_the_pod_that_has_an_address_now_and_not_of_one_that_had_it() -> None:
    """For a moment, EndpointSlices may have both."""
    replicas = tuple(Replica(FIRST, pod, True, False) for pod in ("old", "new"))
    parts = await parts_with(replace(REPLICAS, replicas=replicas))
    parts.outcomes.settle(Ended(sent(parts.control.placement, FIRST).ticket))
    assert list(counted(parts).values()) == [(1, 0)]
