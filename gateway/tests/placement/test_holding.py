"""docs/concepts/gateway.md: where no replica is ready but one is to come, requests wait in order, and no longer than the spec says."""

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from gateway.tests.asking import Answer, ask, expect_a_replica
from gateway.tests.bounds import wait_for
from gateway.tests.gateway_process import HOLD_SECONDS
from gateway.tests.harness import Gateway, running_gateway


@pytest.fixture
def clients() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def waiting(gateway: Gateway, name: str) -> int:
    count: int = gateway.known(name)["waiting"]
    return count


def several(gateway: Gateway, clients: ThreadPoolExecutor, name: str, count: int) -> list[Future[Answer]]:
    found = [clients.submit(ask, gateway, name) for _ in range(count)]
    wait_for(lambda: waiting(gateway, name) == count, f"{count} requests wait", HOLD_SECONDS)
    return found


def test_requests_wait_for_the_first_replica_and_all_are_answered(
    gateway: Gateway, clients: ThreadPoolExecutor
) -> None:
    expect_a_replica(gateway, "cold")
    answers = several(gateway, clients, "cold", 5)
    gateway.replica("cold", "r1", gateway.backend("late"))
    assert [answer.result(10)[0] for answer in answers] == [200] * 5
    assert waiting(gateway, "cold") == 0
    wait_for(lambda: gateway.in_flight("cold") == {}, "their places are free")


def test_a_request_that_waited_long_enough_is_a_503_with_retry_after(gateway: Gateway) -> None:
    expect_a_replica(gateway, "never")
    begun = time.monotonic()
    status, headers, body = ask(gateway, "never")
    assert (status, json.loads(body)["error"]["code"]) == (503, "no_ready_replica")
    assert int(headers["retry-after"]) > 0
    assert time.monotonic() - begun >= HOLD_SECONDS - 0.1
    assert waiting(gateway, "never") == 0


def test_a_place_is_given_back_when_the_client_leaves(gateway: Gateway) -> None:
    expect_a_replica(gateway, "left")
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
    connection.request("POST", "/v1/chat/completions", json.dumps({"model": "team/left"}))
    wait_for(lambda: waiting(gateway, "left") == 1, "the request waits", HOLD_SECONDS)
    connection.close()
    wait_for(lambda: waiting(gateway, "left") == 0, "it waits no longer", 1)


@pytest.mark.parametrize(("end", "status"), [("scaled to zero", 503), ("deleted", 404)])
def test_who_waits_for_what_will_not_come_is_told_so(
    gateway: Gateway, clients: ThreadPoolExecutor, end: str, status: int
) -> None:
    name = f"end{status}"
    expect_a_replica(gateway, name)
    [answer] = several(gateway, clients, name, 1)
    told = time.monotonic()
    if end == "deleted":
        gateway.api.delete("llmendpoints", name)
    else:
        gateway.activate(name, "r1", replicas=0)
    assert answer.result(10)[0] == status
    if end != "deleted":  # which may be back in a moment
        assert time.monotonic() - told < HOLD_SECONDS / 2


def test_nobody_waits_for_an_endpoint_at_zero(gateway: Gateway) -> None:
    gateway.activate("zero", "r1", replicas=0)
    gateway.routed("zero", "r1")
    begun = time.monotonic()
    assert ask(gateway, "zero")[0] == 503
    assert time.monotonic() - begun < HOLD_SECONDS / 2


def test_an_endpoint_that_waits_keeps_no_other_one_waiting(
    gateway: Gateway, clients: ThreadPoolExecutor
) -> None:
    expect_a_replica(gateway, "blocked")
    answers = several(gateway, clients, "blocked", 3)
    name = gateway.endpoint(gateway.backend("well"), replicas=1)
    assert [ask(gateway, name)[0] for _ in range(20)] == [200] * 20
    assert not any(answer.done() for answer in answers)


def test_a_killed_picker_leaves_nobody_waiting_for_ever() -> None:
    with running_gateway() as gateway, ThreadPoolExecutor(2) as clients:
        gateway.ready()
        expect_a_replica(gateway, "cold")
        [answer] = several(gateway, clients, "cold", 1)
        gateway.kill_picker()
        status, headers, _ = answer.result(5)
        assert status == 503
        assert "retry-after" in headers


def test_an_endpoint_that_is_deleted_and_applied_again_within_seconds_loses_no_request(
    gateway: Gateway, clients: ThreadPoolExecutor
) -> None:
    """17 of 475 requests were told that there is no such model, in gaps of less than half a second."""
    name = gateway.endpoint(gateway.backend("again"))
    gateway.api.delete("llmendpoints", name)
    wait_for(lambda: f"team/{name}" not in gateway.state()["endpoints"], "it is gone")
    answers = [clients.submit(ask, gateway, name) for _ in range(3)]
    wait_for(lambda: gateway.metric("waiting_requests") == 3, "they wait")
    gateway.activate(name, "r1")
    assert [answer.result(HOLD_SECONDS)[0] for answer in answers] == [200] * 3


def test_an_endpoint_that_stays_deleted_is_404_in_the_end(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("gone"))
    gateway.api.delete("llmendpoints", name)
    wait_for(lambda: f"team/{name}" not in gateway.state()["endpoints"], "it is gone")
    status, _, body = ask(gateway, name)
    assert (status, json.loads(body)["error"]["code"]) == (404, "model_not_found")
