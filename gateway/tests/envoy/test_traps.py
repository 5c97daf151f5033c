"""docs/decisions/envoy-and-python.md: each trap with Envoy that we fell into has a test.

The name says which trap, the docstring what happened.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter

import httpx
import openai
import pytest

from gateway.tests.asking import CHAT, LONG, ejected, post, stream, until
from gateway.tests.engine_process import Backend
from gateway.tests.harness import Gateway
from llmendpoint_gateway.core.request.refusals import RESTART_RETRY_AFTER


async def split_post(gateway: Gateway, model: str) -> int:
    """The status of a request whose body follows its headers after a moment."""
    body = json.dumps({"model": model}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode())
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.write(body)
    status = (await reader.readline()).split()[1]
    writer.close()
    return int(status)


async def test_trap_1_envoy_waits_for_the_decision_also_when_the_body_comes_later(gateway: Gateway) -> None:
    """In other processing modes Envoy went on without it; here that would be a 503, as there is no cluster."""
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    known = await asyncio.gather(*(split_post(gateway, f"team/{name}") for _ in range(20)))
    unknown = await asyncio.gather(*(split_post(gateway, "nobody") for _ in range(20)))
    assert (Counter(known), Counter(unknown)) == ({200: 20}, {404: 20})
    assert backend.stats()["requests"] == 20


async def test_trap_2_switching_under_streams_loses_none_and_nothing_goes_back(gateway: Gateway) -> None:
    """A request keeps the route table that it started with: with routes that name clusters, 1-3 failed a run."""
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    gateway.replica(name, "r2", new)
    going, results = True, []

    async def client() -> None:
        while going:
            results.append(await stream(gateway, name, tokens=5, interval=0.03))

    clients = [asyncio.create_task(client()) for _ in range(8)]
    for turn in range(6):
        revision, backend = (("r2", new), ("r1", old))[turn % 2]
        await asyncio.sleep(0.3)
        gateway.activate(name, revision)
        await asyncio.to_thread(gateway.routed, name, revision, backend)
        assert await stream(gateway, name, 1, 0) == f"whole {backend.name}"
    going = False
    await asyncio.gather(*clients)
    assert set(results) == {"whole old", "whole new"}


async def test_trap_3_replicas_not_ready_or_terminating_get_nothing_though_envoy_knows_them(
    gateway: Gateway,
) -> None:
    """override_host takes unhealthy and draining hosts: the picker must leave them out by itself."""
    good, cold, going = (gateway.backend(name) for name in ("good", "cold", "going"))
    name = gateway.endpoint(good)
    gateway.replica(name, "r1", cold, ready=False)
    gateway.replica(name, "r1", going, ready=True, terminating=True)
    await until(lambda: len(gateway.state()["endpoints"][f"team/{name}"]["replicas"]) == 3, "all three known")
    gateway.settled()
    assert all(backend.address in gateway.admin("/clusters") for backend in (good, cold, going))
    answers = await asyncio.gather(*(post(gateway, name) for _ in range(30)))
    assert {answer.headers["x-engine"] for answer in answers} == {"good"}
    assert cold.stats()["requests"] == going.stats()["requests"] == 0
    gateway.replica(name, "r1", cold)
    gateway.routed(name, "r1", good, cold)
    answers = await asyncio.gather(*(post(gateway, name) for _ in range(30)))
    assert {answer.headers["x-engine"] for answer in answers} == {"good", "cold"}


async def test_trap_4_a_picker_that_starts_without_the_api_server_takes_nothing_from_envoy(
    gateway: Gateway,
) -> None:
    """An empty first answer removes what Envoy holds, and cuts what runs on it."""
    name = gateway.endpoint(gateway.backend("kept"))
    clusters = gateway.clusters()
    assert f"team/{name}/r1" in clusters
    running = asyncio.create_task(stream(gateway, name, tokens=100, interval=0.03))
    await until(lambda: gateway.in_flight(name), "the stream runs")
    gateway.kill_picker()
    gateway.api.down()
    gateway.start_picker()
    await until(lambda: gateway.state()["connected"], "Envoy is back")
    assert not gateway.state()["synced"]
    assert gateway.clusters() == clusters
    response = await post(gateway, name)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "gateway_starting")
    assert response.headers["retry-after"] == "2"
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://127.0.0.1:{gateway.http_port}/readyz")).status_code == 503
    gateway.api.up()
    await asyncio.to_thread(gateway.ready)
    await asyncio.to_thread(gateway.settled)
    assert gateway.clusters() == clusters
    assert (await post(gateway, name)).status_code == 200
    assert await running == "whole kept"


async def test_trap_6_a_hung_picker_gives_503_with_retry_after_and_recovers(gateway: Gateway) -> None:
    """Without a message timeout requests would hang as long as it does."""
    name = gateway.endpoint(gateway.backend("a"))
    with gateway.picker_hung():
        answers = await asyncio.gather(*(post(gateway, name) for _ in range(5)))
    for response in answers:
        assert (response.status_code, response.headers["retry-after"]) == (503, "2")
        assert response.headers["content-type"] == "application/json"
        assert response.json()["error"]["code"] == "gateway_unavailable"
    await asyncio.to_thread(gateway.settled)
    assert (await post(gateway, name)).status_code == 200


async def test_trap_6_a_disconnect_ends_the_requests_place_in_the_count(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    requests = [asyncio.create_task(stream(gateway, name, 1000, 0.05)) for _ in range(3)]
    requests += [asyncio.create_task(stream(gateway, name, 1, 0, delay=60)) for _ in range(2)]
    await until(lambda: gateway.in_flight(name) == {backend.address: 5}, "five are counted")
    for request in requests:
        request.cancel()
    await until(lambda: gateway.in_flight(name) == {}, "none is counted")
    await until(lambda: backend.stats()["aborted"] == 5, "the engine saw all five go")


async def test_trap_7_a_killed_backend_fails_no_request_before_its_first_byte(gateway: Gateway) -> None:
    """262 failed without retries, 6 with reset-before-request; what has begun cannot be retried and is cut."""
    backends = [gateway.backend(name) for name in ("a", "b", "c")]
    name = gateway.endpoint(*backends)
    going, results = True, []

    async def client() -> None:
        while going:
            results.append(await stream(gateway, name, tokens=5, interval=0.02, delay=0.1))

    clients = [asyncio.create_task(client()) for _ in range(30)]
    await until(lambda: all(b.stats()["requests"] > 5 for b in backends), "all three are loaded")
    begun = gateway.in_flight(name)[backends[0].address]
    backends[0].kill()
    await until(lambda: ejected(gateway, name) == [backends[0].address], "the picker learns of it from Envoy")
    before = len(results)
    await until(lambda: len(results) > before + 60, "traffic goes on")
    going = False
    await asyncio.gather(*clients)
    counts = Counter(result.split()[0] for result in results)
    assert counts["failed"] == 0, [result for result in results if result.startswith("failed")]
    assert counts["cut"] <= begun + 2
    assert counts["whole"] > 60


async def test_trap_7_a_poisoned_request_kills_two_replicas_at_most(gateway: Gateway) -> None:
    """With three retries on a reset, one request killed four."""
    backends = [gateway.backend(f"p{n}") for n in range(4)]
    name = gateway.endpoint(*backends)
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(gateway.url + CHAT, json={"model": f"team/{name}", "prompt": "poison"})
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "replica_failed"
    assert response.headers["retry-after"] == "1"
    await until(lambda: sum(not b.alive for b in backends) >= 1, "it was poison")
    assert sum(backend.alive for backend in backends) >= 2


async def test_trap_11_grpcs_fork_support_is_off_and_the_picker_has_no_children(gateway: Gateway) -> None:
    program = "import os, sys, llmendpoint_gateway.__main__; print('grpc' in sys.modules, os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    environment = {k: v for k, v in os.environ.items() if k != "GRPC_ENABLE_FORK_SUPPORT"}
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "0"]
    assert gateway.children_of_picker() == []


@pytest.mark.parametrize(
    ("path", "runs"), [(CHAT, 2), ("/v1/completions", 2), ("/v1/embeddings", 1), ("/v1/responses", 1)]
)
async def test_trap_13_only_completions_run_twice_after_a_reset(
    gateway: Gateway, path: str, runs: int
) -> None:
    """A reset says nothing of whether the request was carried out: what stores something must not run again."""
    backends = [gateway.backend(f"r{n}", "reset") for n in range(3)]
    name = gateway.endpoint(*backends)
    response = await post(gateway, name, path)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "replica_failed")
    assert sum(backend.stats()["requests"] for backend in backends) == runs


async def test_a_killed_picker_cuts_no_stream_and_an_sdk_sees_no_failure(gateway: Gateway) -> None:
    """With failure_mode_allow false, all of 100 open streams were cut."""
    backends = [gateway.backend("a"), gateway.backend("b")]
    name = gateway.endpoint(*backends)
    streams = [asyncio.create_task(stream(gateway, name, tokens=LONG, interval=0.04)) for _ in range(20)]
    await until(lambda: sum(gateway.in_flight(name).values()) == 20, "all streams run")
    client = openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="none")
    going, answers, failures = True, [], []

    async def ask() -> None:
        while going:
            try:
                answer = await client.chat.completions.create(
                    model=f"team/{name}", messages=[{"role": "user", "content": "hi"}]
                )
                answers.append(answer.choices[0].message.content)
            except openai.OpenAIError as error:
                failures.append(error)

    askers = [asyncio.create_task(ask()) for _ in range(4)]
    await until(lambda: len(answers) > 10, "the SDK is answered")
    killed = time.monotonic()
    gateway.kill_picker()
    gateway.start_picker()
    assert (await post(gateway, name)).status_code == 503
    await asyncio.to_thread(gateway.ready)
    away = time.monotonic() - killed
    before = len(answers)
    await until(lambda: len(answers) > before + 20, "the SDK is answered again")
    going = False
    await asyncio.gather(*askers)
    # Its three attempts span two waits. A machine too busy to start a picker in that time shows nothing of the SDK.
    assert failures == [] or away > 2 * RESTART_RETRY_AFTER
    for backend in backends:
        await asyncio.to_thread(backend.finish, backend.stats()["running"])
    assert {end.split()[0] for end in await asyncio.gather(*streams)} == {"whole"}


async def test_trap_16_envoy_closes_an_idle_connection_before_the_engine_does(gateway: Gateway) -> None:
    """uvicorn closes after 5 s: what Envoy sends on the connection in that moment is lost."""
    backend = gateway.backend("a", "keepalive=5")
    name = gateway.endpoint(backend)
    await asyncio.gather(*(post(gateway, name, **{"x-delay": "0.1"}) for _ in range(5)))
    closed = ("idle_closed_by_peer", "idle_closed_here")
    await until(lambda: sum(backend.stats()[key] for key in closed) >= 5, "the idle connections are closed")
    assert backend.stats()["idle_closed_here"] == 0


async def test_what_is_in_flight_decides_who_is_next(gateway: Gateway) -> None:
    slow, other = gateway.backend("slow"), gateway.backend("other")
    name = gateway.endpoint(slow)
    held = [asyncio.create_task(stream(gateway, name, 1, 0, delay=60)) for _ in range(3)]
    await until(lambda: gateway.in_flight(name) == {slow.address: 3}, "the first is loaded")
    gateway.replica(name, "r1", other)
    gateway.routed(name, "r1", slow, other)
    engines = [(await post(gateway, name)).headers["x-engine"] for _ in range(10)]
    assert engines == ["other"] * 10
    for request in held:
        request.cancel()


def removed(gateway: Gateway, name: str, revision: str) -> bool:
    return f"team/{name}/{revision}" not in gateway.clusters()


async def test_a_removed_replica_drains_and_its_cluster_goes_with_the_last_request(gateway: Gateway) -> None:
    old, new = gateway.backend("old"), gateway.backend("new")
    name = gateway.endpoint(old)
    running = asyncio.create_task(stream(gateway, name, tokens=LONG, interval=0.05))
    await until(lambda: gateway.in_flight(name), "the stream runs")
    gateway.replica(name, "r2", new)
    gateway.activate(name, "r2")
    await asyncio.to_thread(gateway.routed, name, "r2", new)
    gateway.remove_replica(name, "r1", old)
    await until(lambda: old.address not in gateway.admin("/clusters"), "Envoy has let the replica go")
    assert not removed(gateway, name, "r1")
    assert (await post(gateway, name)).headers["x-engine"] == "new"
    assert not running.done()
    await asyncio.to_thread(old.finish, 1)
    assert await running == "whole old"
    await until(lambda: removed(gateway, name, "r1"), "the old cluster is gone")


async def test_a_deleted_endpoint_is_unknown_at_once_and_its_streams_end_well(gateway: Gateway) -> None:
    backend: Backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    running = asyncio.create_task(stream(gateway, name, tokens=LONG, interval=0.05))
    await until(lambda: gateway.in_flight(name), "the stream runs")
    gateway.api.delete("llmendpoints", name)
    gateway.remove_replica(name, "r1", backend)
    await until(lambda: f"team/{name}" not in gateway.state()["endpoints"], "the endpoint is gone")
    assert (await post(gateway, name)).status_code == 404
    await asyncio.to_thread(backend.finish, 1)
    assert await running == "whole a"
    await until(lambda: removed(gateway, name, "r1"), "its cluster is gone")
