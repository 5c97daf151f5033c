"""docs/concepts/gateway.md: a large body is kept until its request ends, within a bound for all and one for each caller."""

import pytest

from gateway.tests.access_log import CHAT_PATH, entry
from gateway.tests.ext_proc_caller import Caller
from gateway.tests.one_endpoint import ADDRESSES, CHAT, REPLICAS, Holding, parts_of, turn
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.envoy.bounds import KEPT_BODY_BYTES, KEPT_BYTES, SMALL_BODY_BYTES
from llmendpoint_gateway.core.envoy.resources import DESTINATION_HEADER, KEPT_HEADER
from llmendpoint_gateway.core.envoy.upstream_logs import LENGTH_HEADER
from llmendpoint_gateway.core.placement.kept import Kept
from llmendpoint_gateway.serve.outcome.access_log import read_attempt


def bounded() -> Kept:
    return Kept(SMALL_BODY_BYTES, KEPT_BODY_BYTES, KEPT_BYTES)


def test_a_small_body_needs_no_leave_and_one_beyond_the_largest_gets_none() -> None:
    kept = bounded()
    sizes = (0, SMALL_BODY_BYTES, SMALL_BODY_BYTES + 1, KEPT_BODY_BYTES, KEPT_BODY_BYTES + 1)
    assert [kept.take(size) for size in sizes] == [0, 0, SMALL_BODY_BYTES + 1, KEPT_BODY_BYTES, 0]


def test_all_kept_bodies_together_have_a_bound() -> None:
    kept = bounded()
    taken = [kept.take(KEPT_BODY_BYTES, caller) for _ in range(100) for caller in range(100)]
    assert KEPT_BYTES - KEPT_BODY_BYTES < sum(taken) == kept.total <= KEPT_BYTES
    kept.give_back(KEPT_BODY_BYTES, 1)
    assert kept.take(KEPT_BODY_BYTES, 1) == KEPT_BODY_BYTES
    assert kept.take(KEPT_BODY_BYTES, 1) == 0


def test_one_caller_leaves_as_much_for_others_as_it_takes() -> None:
    """Long answers to 32 requests of one took what all have: another's request of 40 kB was not tried again."""
    kept = bounded()
    taken = sum(kept.take(KEPT_BODY_BYTES, 1) for _ in range(100))
    assert taken == KEPT_BYTES // 2
    assert kept.take(40_000, 2) == 40_000
    kept.give_back(KEPT_BODY_BYTES, 1)
    kept.give_back(40_000, 2)
    assert kept.take(KEPT_BODY_BYTES, 1) == KEPT_BODY_BYTES


async def test_a_large_body_is_marked_for_envoy_and_given_back_when_its_request_ends() -> None:
    parts = parts_of(Holding())
    control, picker = parts.control, parts.picker
    control.relisted(Kind.ENDPOINT, {"a/chat": CHAT})
    control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await turn()
    small, large = Caller(), Caller()
    small.asks(picker)
    large.asks(picker, b'{"model": "chat", "pad": "%s"}' % (b"x" * SMALL_BODY_BYTES))
    assert KEPT_HEADER not in small.headers
    assert large.headers[KEPT_HEADER] == "1"
    assert set(large.headers[DESTINATION_HEADER].split(",")) == set(ADDRESSES)
    assert control.placement.kept.total > SMALL_BODY_BYTES
    for caller in (small, large):
        picker.ended(caller)  # type: ignore[arg-type]
    assert control.placement.kept.total == 0


@pytest.mark.parametrize(
    ("size", "marked", "tried"), [(1000, False, True), (1 << 20, False, False), (1 << 20, True, True)]
)
def test_a_failed_attempt_is_known_to_be_tried_again_where_its_body_was_kept(
    size: int, marked: bool, tried: bool
) -> None:
    broken = entry(0, CHAT_PATH, upstream_connection_termination=True)
    broken.request.request_headers[LENGTH_HEADER] = str(size)
    if marked:
        broken.request.request_headers[KEPT_HEADER] = "1"
    attempt = read_attempt(broken)
    assert (attempt.retried, attempt.told) == (tried, not tried)
