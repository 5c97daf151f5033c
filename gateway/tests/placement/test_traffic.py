"""docs/contribute/contracts.md: weights, the acknowledged switch, a drain and replicas that fail decide who gets new requests.

Each is tried with the real Envoy.
"""

import asyncio
import contextlib
import socket
from collections import Counter
from collections.abc import Iterator

import httpx

from gateway.tests.api_stub import OPERATOR
from gateway.tests.bounds import wait_for
from gateway.tests.engine_process import Backend
from gateway.tests.harness import Gateway

CHAT = "/v1/chat/completions"


async def engines(gateway: Gateway, name: str, requests: int, clients: int = 16) -> Counter[str]:
    """Who answered so many requests, each with a body of its own; the status of those that nobody answered well."""
    counts: Counter[str] = Counter()
    left = iter(range(requests))

    async def client() -> None:
        async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
            for number in left:
                response = await http.post(CHAT, json={"model": f"team/{name}", "seed": number})
                counts[response.headers.get("x-engine") or str(response.status_code)] += 1

    await asyncio.gather(*(client() for _ in range(clients)))
    return counts


def breakers(gateway: Gateway, name: str) -> dict[str, str]:
    return {r["address"]: r["breaker"] for r in gateway.known(name)["replicas"]}


async def test_shares_are_within_2_points_of_the_weights_over_2000_requests(gateway: Gateway) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    gateway.traffic(name, 5, r1=90, r2=10)
    gateway.follows(name, 5)
    assert gateway.known(name)["weights"] == {"r1": 90, "r2": 10}
    counts = await engines(gateway, name, 2000)
    assert sum(counts.values()) == 2000
    assert abs(counts["new"] / 20 - 10) <= 2
    assert counts["new"] + counts["old"] == 2000


async def test_after_the_acknowledged_switch_nothing_goes_to_the_old_revision_and_nothing_fails(
    gateway: Gateway,
) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.traffic(name, 1, r1=100)
    gateway.follows(name, 1)
    gateway.traffic(name, 2, r2=100)
    assert await engines(gateway, name, 50) == {"old": 50}
    assert gateway.known(name)["epoch"] == 1
    gateway.replica(name, "r2", new)
    under_way = asyncio.create_task(engines(gateway, name, 300))
    await asyncio.to_thread(gateway.follows, name, 2)
    seen = old.stats()["requests"]
    assert await engines(gateway, name, 100) == {"new": 100}
    assert set(await under_way) <= {"old", "new"}
    # What was decided before the acknowledgement may arrive after it: one for each client at most.
    assert old.stats()["requests"] <= seen + 16
    gateway.traffic(name, 1, r1=100)  # a restored backup
    await asyncio.to_thread(gateway.follows, name, 1)
    assert await engines(gateway, name, 20) == {"old": 20}


async def test_a_gateway_that_was_stopped_during_a_switch_follows_as_soon_as_it_goes_on(
    gateway: Gateway,
) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    gateway.traffic(name, 1, r1=100)
    gateway.follows(name, 1)
    with gateway.picker_hung():
        gateway.traffic(name, 2, r2=100)
        assert await engines(gateway, name, 4, clients=4) == {"503": 4}
    await asyncio.to_thread(gateway.follows, name, 2)
    assert await engines(gateway, name, 30) == {"new": 30}


async def test_a_revision_without_a_routable_replica_gives_its_share_to_the_others(gateway: Gateway) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    gateway.traffic(name, 3, r1=50, r2=50)
    gateway.follows(name, 3)
    gateway.replica(name, "r2", new, ready=False)
    wait_for(lambda: [r["ready"] for r in gateway.known(name)["replicas"]] == [True, False], "r2 is cold")
    assert await engines(gateway, name, 40) == {"old": 40}
    assert gateway.known(name)["epoch"] == 3


async def test_a_draining_pod_gets_nothing_new_and_its_streams_end_well(gateway: Gateway) -> None:
    going, staying = gateway.backend("going"), gateway.backend("staying")
    name = gateway.endpoint(going, staying)
    gateway.traffic(name, 1, r1=100)
    gateway.follows(name, 1)
    headers = {"x-tokens": "60", "x-interval": "0.05"}
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
        client.stream("POST", CHAT, json={"model": f"team/{name}"}, headers=headers) as response,
    ):
        (busy,) = gateway.in_flight(name)
        leaving, other = (going, staying) if busy == going.address else (staying, going)
        gateway.traffic(name, 2, draining=(f"{leaving.name}-{leaving.port}",), r1=100)
        await asyncio.to_thread(gateway.follows, name, 2)
        shown = {r["address"]: r["draining"] for r in gateway.known(name)["replicas"]}
        assert shown == {leaving.address: True, other.address: False}
        assert await engines(gateway, name, 50) == {other.name: 50}
        assert b"[DONE]" in await response.aread()


@contextlib.contextmanager
def black_hole() -> Iterator[Backend]:
    """A replica to which every connection times out: its queue of connections is full and nobody accepts."""
    with socket.socket() as listener, contextlib.ExitStack() as filling:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        for _ in range(4):
            connection = filling.enter_context(socket.socket())
            connection.setblocking(False)
            connection.connect_ex(("127.0.0.1", port))
        yield Backend("hole", port)


async def test_a_backend_that_times_out_is_out_of_the_pick_before_its_third_timeout(gateway: Gateway) -> None:
    good = gateway.backend("good")
    with black_hole() as hole:
        name = gateway.endpoint(good, hole)
        assert await engines(gateway, name, 100, clients=1) == {"good": 100}
        standing = breakers(gateway, name)
        assert standing[good.address] == "closed"
        assert standing[hole.address] != "closed"
        assert gateway.revisions(name)["r1"]["errors"] < 3


async def test_a_replica_that_only_errs_is_ejected(gateway: Gateway) -> None:
    bad, good = gateway.backend("bad", "500"), gateway.backend("good")
    name = gateway.endpoint(bad, good)
    before = await engines(gateway, name, 100, clients=1)
    assert before["bad"] < 25  # of the 50 that were its turn
    assert breakers(gateway, name) == {bad.address: "open", good.address: "closed"}
    assert await engines(gateway, name, 20) == {"good": 20}
    labels = f'address="{bad.address}",llmendpoint="{name}",namespace="team",revision="r1"'
    assert gateway.metric(f"ejected{{{labels}}}") == 1


async def test_when_all_of_a_new_revision_crash_the_old_one_takes_over_before_anybody_is_told(
    gateway: Gateway,
) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    gateway.traffic(name, 2, blue="r1", r2=100)
    gateway.follows(name, 2)
    assert await engines(gateway, name, 50) == {"new": 50}
    new.kill()
    counts = await engines(gateway, name, 200, clients=4)
    assert counts["503"] <= 12
    assert counts["old"] + counts["503"] == 200
    assert gateway.known(name)["epoch"] == 2


async def test_a_trial_of_a_long_stream_closes_while_the_stream_runs(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    backend.kill()
    assert await engines(gateway, name, 1, clients=1) == {"503": 1}
    backend.start()
    headers = {"x-tokens": "10000", "x-interval": "0.05"}
    async with (
        httpx.AsyncClient(base_url=gateway.url, timeout=60) as client,
        client.stream("POST", CHAT, json={"model": f"team/{name}"}, headers=headers) as response,
    ):
        assert response.status_code == 200
        closed = {backend.address: "closed"}
        await asyncio.to_thread(wait_for, lambda: breakers(gateway, name) == closed, "it is closed again")
        assert gateway.in_flight(name) == {backend.address: 1}


def ready(gateway: Gateway) -> int:
    return httpx.get(f"http://127.0.0.1:{gateway.http_port}/readyz", timeout=30).status_code


def tell(gateway: Gateway, body: object) -> httpx.Response:
    """As the operator."""
    headers = {"Authorization": f"Bearer {gateway.api.token(OPERATOR)}"}
    return httpx.post(f"http://127.0.0.1:{gateway.http_port}/epoch", json=body, headers=headers, timeout=30)


def test_a_gateway_that_is_cut_off_and_behind_is_not_ready_until_it_has_caught_up(gateway: Gateway) -> None:
    name = gateway.endpoint(gateway.backend("a"))
    gateway.traffic(name, 1, r1=100)
    gateway.follows(name, 1)
    assert tell(gateway, {f"team/{name}": 2}).json() == {"behind": [f"team/{name}"]}
    assert ready(gateway) == 200  # it may hear of it any moment
    gateway.api.down()
    wait_for(lambda: ready(gateway) == 503, "cut off and behind")
    assert httpx.post(gateway.url + CHAT, json={"model": f"team/{name}"}, timeout=30).status_code == 200
    gateway.traffic(name, 2, r1=100)
    gateway.api.up()
    wait_for(lambda: ready(gateway) == 200, "it has caught up")
    gateway.api.down()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") > 0, "cut off again")
    assert ready(gateway) == 200  # all gateways are where it is
    gateway.api.up()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") == 0, "the watch is fresh again")


def test_an_epoch_that_is_not_a_number_is_refused_by_name(gateway: Gateway) -> None:
    for body in ([], {"team/chat": "2"}, {"team/chat": True}, 3):
        response = tell(gateway, body)
        assert response.status_code == 400
        assert "namespace/name" in response.json()["error"]


def test_a_gateway_that_is_cut_off_uses_any_ready_revision_when_its_own_is_gone(gateway: Gateway) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    wait_for(lambda: len(gateway.known(name)["replicas"]) == 2, "both are known")
    gateway.settled()
    gateway.api.down()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") > 0, "cut off")
    old.kill()
    body = {"model": f"team/{name}"}
    statuses = [httpx.post(gateway.url + CHAT, json=body, timeout=30).status_code for _ in range(5)]
    assert statuses == [503, 200, 200, 200, 200]
    gateway.api.up()
    wait_for(lambda: gateway.metric("watch_staleness_seconds") == 0, "the watch is fresh again")
