"""docs/contribute/contracts.md: `/revisions` counts Envoy's attempts by revision and by replica, and which of them are errors.

Each is tried with the real Envoy.
"""

import re
from collections.abc import Callable

import httpx
import pytest

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway
from llmendpoint_gateway.core.envoy.attempt_counts import read_attempts, stats_pattern

CHAT = "/v1/chat/completions"


def ask(gateway: Gateway, name: str, **headers: str) -> int:
    body = {"model": f"team/{name}"}
    return httpx.post(gateway.url + CHAT, json=body, headers=headers, timeout=30).status_code


def counts(gateway: Gateway, name: str, revision: str = "r1") -> tuple[int, int]:
    """(requests, errors)"""
    counters = gateway.revisions(name)[revision]
    return counters["requests"], counters["errors"]


@pytest.mark.parametrize(
    ("option", "status", "counted"),
    [
        ("", 200, (1, 0)),
        ("503", 503, (1, 1)),
        ("500", 500, (1, 1)),
        ("429", 429, (1, 0)),
        ("reset", 503, (1, 1)),
        ("retriable-503", 503, (1, 0)),
    ],
)
def test_what_is_an_error_and_what_is_none(
    gateway: Gateway, option: str, status: int, counted: tuple[int, int]
) -> None:
    name = gateway.endpoint(gateway.backend("a", *([option] if option else [])))
    assert set(gateway.revisions(name)) == {"r1"}
    assert counts(gateway, name) == (0, 0)
    assert ask(gateway, name) == status
    attempts = 2 if option in ("reset", "retriable-503") else 1  # with one replica it is tried there again
    expected = tuple(attempts * number for number in counted)
    wait_for(lambda: counts(gateway, name) == expected, f"counted as {expected}")


def together(gateway: Gateway, name: str) -> tuple[int, int]:
    """(requests, errors) of all replicas"""
    requests, errors = zip(*gateway.by_replica(name).values(), strict=True)
    return sum(requests), sum(errors)


def test_the_counts_by_replica_are_together_those_of_the_revision(gateway: Gateway) -> None:
    bad, busy, good = gateway.backend("bad", "500"), gateway.backend("busy", "429"), gateway.backend("good")
    name = gateway.endpoint(bad, busy, good)
    assert together(gateway, name) == (0, 0)
    statuses = [ask(gateway, name) for _ in range(9)]
    assert set(statuses) == {200, 429, 500}
    expected = (9, statuses.count(500))
    wait_for(lambda: counts(gateway, name) == together(gateway, name) == expected, f"both count {expected}")
    told = {pod.rpartition("-")[0]: counted for pod, counted in gateway.by_replica(name).items()}
    assert told["bad"] == (statuses.count(500), statuses.count(500))
    assert told["busy"] == (statuses.count(429), 0)
    assert told["good"] == (statuses.count(200), 0)


def test_a_replica_that_cannot_be_reached_has_its_own_errors_and_its_counts_go_with_it(
    gateway: Gateway,
) -> None:
    dead, good = gateway.backend("dead"), gateway.backend("good")
    name = gateway.endpoint(dead, good)
    dead.kill()
    assert {ask(gateway, name) for _ in range(4)} == {200}
    wait_for(lambda: together(gateway, name)[1] == counts(gateway, name)[1] == 1, "one failed connect")
    told = {pod.rpartition("-")[0]: counted for pod, counted in gateway.by_replica(name).items()}
    assert told["dead"] == (1, 1)
    assert told["good"][1] == 0
    gateway.remove_replica(name, "r1", dead)
    wait_for(lambda: len(gateway.by_replica(name)) == 1, "the pod is gone, and so are its counts")


def test_a_picker_that_starts_anew_counts_replicas_from_0_and_says_so(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    ask(gateway, name)
    wait_for(lambda: together(gateway, name) == (1, 0), "it is counted")
    before = gateway.get(f"/revisions/team/{name}")
    gateway.kill_picker()
    gateway.start_picker()
    gateway.ready()
    after = gateway.get(f"/revisions/team/{name}")
    assert after["instance"] == before["instance"]
    assert after["picker"] != before["picker"]
    assert together(gateway, name) == (0, 0)
    assert counts(gateway, name) == (1, 0)


def test_no_connection_is_an_error_and_its_retry_elsewhere_a_request(gateway: Gateway) -> None:
    dead, good = gateway.backend("dead"), gateway.backend("good")
    name = gateway.endpoint(dead, good)
    dead.kill()
    assert {ask(gateway, name) for _ in range(4)} == {200}
    wait_for(lambda: counts(gateway, name) == (5, 1), "four good answers and one failed connect")


def test_a_stream_that_breaks_is_an_error_and_one_that_its_client_leaves_is_none(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    endless = {"x-tokens": "10000", "x-interval": "0.02"}

    def start() -> tuple[httpx.Client, httpx.Response]:
        client = httpx.Client(timeout=30)
        request = client.build_request(
            "POST", gateway.url + CHAT, json={"model": f"team/{name}"}, headers=endless
        )
        return client, client.send(request, stream=True)

    client, _ = start()
    client.close()
    wait_for(lambda: counts(gateway, name) == (1, 0), "a client's leave is no error")
    client, response = start()
    assert response.status_code == 200
    backend.kill()
    wait_for(lambda: counts(gateway, name) == (2, 1), "a broken stream is one")
    client.close()


def test_a_client_that_leaves_before_the_first_byte_says_nothing_of_the_revision(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(gateway.url + CHAT, json={"model": f"team/{name}"}, headers={"x-delay": "60"}, timeout=0.5)
    wait_for(lambda: backend.stats()["aborted"] == 1, "the engine saw it go")
    assert ask(gateway, name) == 200
    wait_for(lambda: counts(gateway, name) == (1, 0), "only the one that was answered counts")


def test_revisions_are_counted_apart_and_an_unknown_endpoint_has_none(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("old"))
    new = gateway.backend("new", "500")
    gateway.replica(name, "r2", new)
    ask(gateway, name)
    gateway.traffic(name, 1, r2=100)
    gateway.follows(name, 1)
    ask(gateway, name)
    wait_for(lambda: counts(gateway, name, "r2") == (1, 1), "the new one is counted")
    assert counts(gateway, name, "r1") == (1, 0)
    assert gateway.revisions("nobody") == {}


def test_the_instance_is_new_with_every_start_of_envoy_and_without_envoy_the_answer_is_503(
    gateway: Gateway,
) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    ask(gateway, name)
    wait_for(lambda: counts(gateway, name) == (1, 0), "it is counted")
    before = gateway.get(f"/revisions/team/{name}")["instance"]
    assert gateway.get(f"/revisions/team/{name}")["instance"] == before
    gateway.envoy.kill()
    gateway.envoy.wait()
    response = httpx.get(f"http://127.0.0.1:{gateway.http_port}/revisions/team/{name}", timeout=30)
    assert response.status_code == 503
    assert "does not answer" in response.json()["error"]
    gateway.start_envoy()
    gateway.ready()
    wait_for(lambda: gateway.get(f"/revisions/team/{name}")["instance"] != before, "another instance")
    assert counts(gateway, name) == (0, 0)


def matches(endpoint: str) -> Callable[[str], bool]:
    return lambda stat: re.search(stats_pattern(endpoint), stat) is not None


def test_the_pattern_takes_one_endpoint_by_its_whole_name() -> None:
    ours = matches("team-a/chat.v2")
    assert ours("attempts.ended.cluster.team-a/chat.v2/r1")
    assert ours("attempts.failed.cluster.team-a/chat.v2/r1")
    assert not ours("attempts.ended.cluster.team-a/chatxv2/r1")
    assert not ours("attempts.ended.cluster.team-a/chat.v2b/r1")
    assert not ours("attempts.ended.cluster.a-team-a/chat.v2/r1")


def test_counters_are_read_and_what_never_came_is_zero() -> None:
    document = {
        "stats": [
            {"name": "attempts.ended.cluster.a/b/r1", "value": 5},
            {"name": "attempts.failed.cluster.a/b/r1", "value": 2},
            {"name": "attempts.ended.cluster.a/b/r2", "value": 1},
            {"histograms": {}},
        ]
    }
    assert read_attempts(document, "a/b", ["r3"]) == {
        "r1": {"requests": 5, "errors": 2},
        "r2": {"requests": 1, "errors": 0},
        "r3": {"requests": 0, "errors": 0},
    }
