"""docs/concepts/gateway.md: Envoy is told of what changed, of nothing else, and of nothing before the picker knows the state."""

import asyncio
import json
import os
import signal
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from envoy.config.core.v3.base_pb2 import Node
from envoy.service.discovery.v3.discovery_pb2 import DeltaDiscoveryRequest, DeltaDiscoveryResponse
from google.protobuf import json_format

from gateway.tests.asking import CHAT
from gateway.tests.bounds import PATIENCE, wait_for
from gateway.tests.harness import Gateway
from gateway.tests.one_endpoint import ADDRESSES, REPLICAS, parts_of, turn
from gateway.tests.one_endpoint import CHAT as CHAT_ENDPOINT
from gateway.tests.picker_in_process import EnvoyAlone, envoy_alone, picker, settled
from llmendpoint_gateway import server as server_module
from llmendpoint_gateway.core.endpoint.objects import Replica, Slice
from llmendpoint_gateway.core.endpoint.view import Kind
from llmendpoint_gateway.core.envoy import resources
from llmendpoint_gateway.core.envoy.bounds import Share
from llmendpoint_gateway.core.envoy.front import FRONT, Front
from llmendpoint_gateway.core.envoy.snapshot import Health, Host, Snapshot
from llmendpoint_gateway.core.envoy.xds import CLUSTER, ENDPOINTS, LISTENER
from llmendpoint_gateway.serve.envoy import ads as ads_module
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.parts import Parts

CLUSTER_NAME = "a/chat/r1"
COUNTED = (
    "cluster_added",
    "cluster_modified",
    "cluster_removed",
    "cds.update_success",
    "cds.update_rejected",
)


class Context:
    """Of a stream that only keeps what is written to it."""

    def __init__(self) -> None:
        self.written: list[DeltaDiscoveryResponse] = []

    async def write(self, response: DeltaDiscoveryResponse) -> None:
        self.written.append(response)


async def test_trap_4_a_restarted_picker_says_nothing_until_it_knows_the_state() -> None:
    ads, context = Ads(), Context()

    async def requests() -> AsyncIterator[DeltaDiscoveryRequest]:
        yield DeltaDiscoveryRequest(type_url=CLUSTER, initial_resource_versions={"a/old/r1": "1"})
        await asyncio.Event().wait()

    stream = asyncio.create_task(ads.DeltaAggregatedResources(requests(), context))
    for _ in range(5):
        await turn()
    assert ads.connected
    assert context.written == []
    hosts = (Host(ADDRESSES[0], Health.HEALTHY),)
    ads.publish(Snapshot(1, {CLUSTER_NAME: hosts}, frozenset({CLUSTER_NAME})))
    for _ in range(5):
        await turn()
    (response,) = context.written
    assert [resource.name for resource in response.resources] == [CLUSTER_NAME]
    assert list(response.removed_resources) == ["a/old/r1"]
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)
    assert not ads.connected


@pytest.mark.parametrize("envoy", [True, False])
@pytest.mark.parametrize("with_keys", [True, False])
async def test_an_envoy_that_was_told_otherwise_of_keys_gets_no_listeners(
    envoy: bool, with_keys: bool
) -> None:
    """Started by hand, with `--authentication` at one of the two only: all callers would get in, or none."""
    ads, context = Ads(with_keys), Context()
    front = Front("0.0.0.0", 8080, "/run/inner.sock", Share(), with_keys=envoy)
    node = json_format.ParseDict({"metadata": {FRONT: front.as_metadata()}}, Node())

    async def requests() -> AsyncIterator[DeltaDiscoveryRequest]:
        yield DeltaDiscoveryRequest(type_url=LISTENER, node=node)
        await asyncio.Event().wait()

    ads.publish(Snapshot(1, {}, frozenset()))
    stream = asyncio.create_task(ads.DeltaAggregatedResources(requests(), context))
    for _ in range(5):
        await turn()
    found = {resource.name for response in context.written for resource in response.resources}
    assert found == ({"openai", "large"} if envoy is with_keys else set())
    stream.cancel()
    await asyncio.gather(stream, return_exceptions=True)


class PlayedEnvoy:
    """Acknowledges everything but `refused` endpoints, and asks for those of each cluster that it is told of. When it
    connects again it says what it `held`."""

    def __init__(self, refused: str = "") -> None:
        self.refused = refused
        self.held: dict[str, dict[str, str]] = {CLUSTER: {}, ENDPOINTS: {}}
        self._requests: asyncio.Queue[DeltaDiscoveryRequest] = asyncio.Queue()

    async def write(self, response: DeltaDiscoveryResponse) -> None:
        answer = DeltaDiscoveryRequest(type_url=response.type_url, response_nonce=response.nonce)
        versions = {resource.name: resource.version for resource in response.resources}
        if response.type_url == ENDPOINTS and self.refused in versions:
            answer.error_detail.message = "bad address"
        else:
            self.held[response.type_url] |= versions
        self._requests.put_nowait(answer)
        if response.type_url == CLUSTER:
            self._requests.put_nowait(
                DeltaDiscoveryRequest(type_url=ENDPOINTS, resource_names_subscribe=versions)
            )

    async def serve(self, ads: Ads) -> None:
        self._requests = asyncio.Queue()
        for kind, versions in self.held.items():
            names = self.held[CLUSTER] if kind == ENDPOINTS else ()
            if names or kind == CLUSTER:
                self._requests.put_nowait(
                    DeltaDiscoveryRequest(
                        type_url=kind, resource_names_subscribe=names, initial_resource_versions=versions
                    )
                )

        async def requests() -> AsyncIterator[DeltaDiscoveryRequest]:
            while True:
                yield await self._requests.get()

        await ads.DeltaAggregatedResources(requests(), self)


async def follows(parts: Parts, key: str, *addresses: str) -> None:
    """The endpoint's requests go to these."""
    for _ in range(200):
        await turn()
        route = parts.placement.route(key)
        if route and [t.addresses for t in route.targets] == [addresses] and parts.placement.started:
            return
    raise TimeoutError(f"{key} does not go to {addresses}")


@pytest.mark.parametrize("anew", [False, True], ids=["the same Envoy", "a new Envoy"])
async def test_one_refused_resource_holds_up_no_other_endpoint_and_no_later_stream(anew: bool) -> None:
    ads, envoy = Ads(), PlayedEnvoy(refused="a/bad/r1")
    parts = parts_of(ads)
    following = asyncio.create_task(parts.control.run())
    first = asyncio.create_task(envoy.serve(ads))
    bad = replace(CHAT_ENDPOINT, name="bad", served_names=("bad",))
    replicas, other = REPLICAS.replicas, Replica("10.0.0.9:8000", "p", True, False)
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": CHAT_ENDPOINT, "a/bad": bad})
    parts.control.relisted(
        Kind.SLICE,
        {"a/s": Slice("a/chat", "r1", replicas[:1]), "a/t": Slice("a/bad", "r1", (other,))},
    )
    await follows(parts, "a/chat", replicas[0].address)
    assert ads.nack == "bad address"
    assert ads.acknowledged_generation < parts.control.generation, "it does not have everything"
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    again = PlayedEnvoy(refused="a/bad/r1") if anew else envoy
    second = asyncio.create_task(again.serve(ads))
    parts.control.applied(Kind.SLICE, "a/s", Slice("a/chat", "r1", replicas[:2]))
    await follows(parts, "a/chat", replicas[0].address, replicas[1].address)
    for task in (second, following):
        task.cancel()


async def test_what_envoy_kept_instead_of_what_it_refused_serves_after_it_connects_again() -> None:
    ads, envoy = Ads(), PlayedEnvoy()
    parts = parts_of(ads)
    following = asyncio.create_task(parts.control.run())
    first = asyncio.create_task(envoy.serve(ads))
    replicas = REPLICAS.replicas
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": CHAT_ENDPOINT})
    parts.control.relisted(Kind.SLICE, {"a/s": Slice("a/chat", "r1", replicas[:1])})
    await follows(parts, "a/chat", replicas[0].address)
    envoy.refused = "a/chat/r1"
    parts.control.applied(Kind.SLICE, "a/s", Slice("a/chat", "r1", replicas[:2]))
    for _ in range(20):
        await turn()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    second = asyncio.create_task(envoy.serve(ads))
    for _ in range(20):
        await turn()
    assert ads.nack == "bad address"
    await follows(parts, "a/chat", replicas[0].address)
    for task in (second, following):
        task.cancel()


async def most_memory_of_an_event(endpoints: int) -> int:
    """Bytes that one change of a slice takes at a time, until the table follows its acknowledgement."""
    ads = Ads()
    parts = parts_of(ads)
    tasks = [asyncio.create_task(parts.control.run()), asyncio.create_task(PlayedEnvoy().serve(ads))]
    known = {
        f"a/c{n}": replace(CHAT_ENDPOINT, name=f"c{n}", served_names=(f"c{n}",)) for n in range(endpoints)
    }
    slices = {
        f"a/s{n}": Slice(f"a/c{n}", "r1", (Replica(f"10.0.{n // 250}.{n % 250}:8000", f"p{n}", True, False),))
        for n in range(endpoints)
    }
    parts.control.relisted(Kind.ENDPOINT, known)
    parts.control.relisted(Kind.SLICE, slices)
    await settled(parts)
    most = 0
    for n in range(5):
        changed = replace(slices[f"a/s{n}"].replicas[0], ready=False)
        tracemalloc.start()
        parts.control.applied(Kind.SLICE, f"a/s{n}", replace(slices[f"a/s{n}"], replicas=(changed,)))
        while (route := parts.placement.route(f"a/c{n}")) is None or route.targets:
            await turn()
        await settled(parts)
        most = max(most, tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    for task in tasks:
        task.cancel()
    return most


async def test_a_change_takes_as_much_memory_among_many_endpoints_as_among_few() -> None:
    assert await most_memory_of_an_event(1500) < await most_memory_of_an_event(40) + 4096


def counted(gateway: Gateway) -> dict[str, int]:
    """What Envoy did with clusters so far."""
    stats = json.loads(gateway.admin("/stats?format=json&filter=^cluster_manager"))["stats"]
    values = {
        stat["name"].removeprefix("cluster_manager."): stat.get("value") for stat in stats if "name" in stat
    }
    return {name: int(values.get(name) or 0) for name in COUNTED}


def ask(gateway: Gateway, name: str) -> int:
    return httpx.post(gateway.url + CHAT, json={"model": f"team/{name}"}, timeout=30).status_code


def test_a_replica_that_comes_makes_envoy_look_at_no_cluster(gateway: Gateway) -> None:
    one, two = gateway.backend("one"), gateway.backend("two")
    name = gateway.endpoint(one)
    before = counted(gateway)
    gateway.replica(name, "r1", two)
    gateway.routed(name, "r1", one, two)
    assert {ask(gateway, name) for _ in range(4)} == {200}
    assert (one.stats()["requests"], two.stats()["requests"]) == (2, 2)
    assert counted(gateway) == before


def test_after_a_restart_of_the_picker_envoy_is_sent_what_changed_meanwhile(gateway: Gateway) -> None:
    leaving, new = gateway.backend("leaving"), gateway.backend("new")
    same, changed = (gateway.endpoint(gateway.backend(name)) for name in ("same", "changed"))
    gone = gateway.endpoint(leaving)
    before = counted(gateway)
    gateway.kill_picker()
    gateway.replica(changed, "r2", new)
    gateway.activate(changed, "r2")
    gateway.remove_replica(gone, "r1", leaving)
    gateway.api.delete("llmendpoints", gone)
    gateway.start_picker()
    gateway.ready()
    gateway.routed(changed, "r2", new)
    assert (ask(gateway, same), ask(gateway, changed)) == (200, 200)
    after = counted(gateway)
    differences = {name: after[name] - before[name] for name in COUNTED}
    assert differences.pop("cds.update_success") <= 2
    assert differences == {
        "cluster_added": 1,
        "cluster_modified": 0,
        "cluster_removed": 1,
        "cds.update_rejected": 0,
    }


def test_an_endpoint_that_goes_and_comes_back_at_once_is_served_each_time(gateway: Gateway) -> None:
    backend = gateway.backend("a")
    name = gateway.endpoint(backend)
    for _ in range(20):
        gateway.remove_replica(name, "r1", backend)
        gateway.api.delete("llmendpoints", name)
        gateway.replica(name, "r1", backend)
        gateway.activate(name, "r1")
    gateway.settled()
    gateway.routed(name, "r1", backend)
    wait_for(lambda: ask(gateway, name) == 200, "it is served")


async def list_all(parts: Parts) -> None:
    parts.control.relisted(Kind.ENDPOINT, {"a/chat": CHAT_ENDPOINT})
    parts.control.relisted(Kind.SLICE, {"a/s": REPLICAS})
    await settled(parts, 10.0)  # Envoy itself would go on after 15 s, with the hosts that it knows


async def configured(envoy: EnvoyAlone) -> tuple[list[str], list[str]]:
    """connect_timeout of the cluster as it serves, and its hosts."""
    dump = json.loads(await asyncio.to_thread(envoy.admin, "/config_dump?resource=dynamic_active_clusters"))
    serving = [
        found["cluster"] for found in dump.get("configs", []) if found["cluster"]["name"] == CLUSTER_NAME
    ]
    lines = (await asyncio.to_thread(envoy.admin, "/clusters")).splitlines()
    hosts = {line.split("::")[1] for line in lines if line.startswith(f"{CLUSTER_NAME}::1")}
    return [cluster["connect_timeout"] for cluster in serving], sorted(hosts)


@pytest.fixture
def made_anew() -> Iterator[None]:
    """What is kept of clusters is forgotten before the test and after it."""
    for kept in (made := (ads_module.cluster_version, ads_module._cluster)):
        kept.cache_clear()
    yield
    for kept in made:
        kept.cache_clear()


@pytest.mark.usefixtures("made_anew")
async def test_trap_4_another_version_of_the_picker_changes_the_clusters_that_envoy_holds_and_loses_no_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def changed(name: str) -> dict[str, Any]:
        return resources.make_cluster(name) | {"connect_timeout": "3s"}

    async with envoy_alone() as envoy:
        async with picker(envoy) as parts:
            await list_all(parts)
            assert await configured(envoy) == (["1s"], sorted(ADDRESSES))
        monkeypatch.setattr(ads_module, "make_cluster", changed)
        ads_module.cluster_version.cache_clear()
        ads_module._cluster.cache_clear()
        async with picker(envoy) as parts:
            await list_all(parts)
            assert await configured(envoy) == (["3s"], sorted(ADDRESSES))


async def test_an_envoy_that_hangs_counts_as_gone_and_nothing_is_kept_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def until(condition: Callable[[], bool]) -> None:
        for _ in range(int(PATIENCE / 0.05)):
            if condition():
                return
            await asyncio.sleep(0.05)
        raise TimeoutError

    options, soon = dict(server_module.GRPC_OPTIONS), ("grpc.keepalive_time_ms", "grpc.http2.ping_timeout_ms")
    assert all(options[name] <= 20_000 for name in soon)
    monkeypatch.setattr(server_module, "GRPC_OPTIONS", [*(options | dict.fromkeys(soon, 1000)).items()])
    async with envoy_alone() as envoy, picker(envoy) as parts:
        await list_all(parts)
        os.kill(envoy.envoy.pid, signal.SIGSTOP)
        try:
            await until(lambda: not parts.ads.connected)
            assert not parts.ads._streams
        finally:
            os.kill(envoy.envoy.pid, signal.SIGCONT)
        await until(lambda: parts.ads.connected)
