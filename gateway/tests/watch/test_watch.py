"""docs/contribute/contracts.md: a gateway goes on without the API server and says so, and the next list brings what it missed."""

import httpx

from gateway.tests.bounds import wait_for
from gateway.tests.harness import Gateway

CHAT = "/v1/chat/completions"


def ask(gateway: Gateway, name: str) -> int:
    return httpx.post(gateway.url + CHAT, json={"model": f"team/{name}"}, timeout=30).status_code


def test_without_the_api_server_the_gateway_goes_on_and_says_so(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    assert gateway.metric("watch_staleness_seconds") == 0
    gateway.api.down()
    # /readyz rounds to tenths.
    wait_for(
        lambda: gateway.metric("watch_staleness_seconds") > 0.1, "the metric says that the watch is stale"
    )
    assert ask(gateway, name) == 200
    ready = gateway.get("/readyz")
    assert ready["ready"]
    assert ready["watch_staleness_seconds"] > 0
    gateway.api.up()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") == 0, "the watch is fresh again")


def test_a_delete_that_nobody_heard_of_ends_with_the_next_list(gateway: Gateway) -> None:
    ghost, living = gateway.backend("ghost"), gateway.backend("living")
    name = gateway.endpoint(ghost, living)
    gateway.remove_replica(name, "r1", ghost, silently=True)
    gateway.api.expire()
    gateway.routed(name, "r1", living)
    assert ask(gateway, name) == 200
    assert ghost.address not in gateway.admin("/clusters")


def test_changes_made_while_the_watch_was_broken_arrive(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("old"))
    gateway.api.down()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") > 0, "the watch is broken")
    new = gateway.backend("new")
    gateway.replica(name, "r2", new)
    gateway.activate(name, "r2")
    gateway.api.up()
    gateway.routed(name, "r2", new)
    assert ask(gateway, name) == 200


def test_one_unreadable_object_does_not_stop_the_rest(gateway: Gateway) -> None:
    gateway.api.put("endpointslices", {"metadata": {"namespace": "team", "name": "odd", "labels": {}}})
    name = gateway.endpoint(gateway.backend("a"))
    assert ask(gateway, name) == 200
    wait_for(lambda: "object ignored" in gateway.log("picker"), "the log names it")
