"""docs/concepts/gateway.md: bodies that never end fit into Envoy's memory, and callers who keep to the limits do not notice."""

import asyncio

import httpx
import pytest

from gateway.tests.asking import CHAT, post
from gateway.tests.bounds import most_resident_bytes, resident_bytes, wait_for
from gateway.tests.harness import Gateway, running_gateway
from gateway.tests.uploads import MIB, PROTOCOLS, body_of, streams, upload
from llmendpoint_gateway.core.envoy.bounds import MAX_BODY_BYTES


async def attack(gateway: Gateway, protocol: str, uploads: int, size: int, running: int) -> None:
    """Uploads that are never finished, while streams run and small requests come."""
    name = gateway.endpoint(gateway.backend("a"))
    before = gateway.resident_bytes()
    async with streams(gateway, name, running):
        body = body_of(name, size)
        slow = [asyncio.create_task(upload(gateway, protocol, body, short=1000)) for _ in range(uploads)]
        for _ in range(20):
            assert (await post(gateway, name)).status_code == 200
            await asyncio.sleep(0.1)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert gateway.resident_bytes() < before + 32 * MIB
    assert (await post(gateway, name)).status_code == 200


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_uploads_that_never_end_take_no_more_memory_than_there_is_and_harm_nobody(
    protocol: str,
) -> None:
    """Four times as much is sent as Envoy may hold."""
    limit = 192 * MIB
    with running_gateway(DEFAULT_MEMORY_BYTES=limit) as gateway:
        await attack(gateway, protocol, uploads=24, size=MAX_BODY_BYTES, running=20)
        assert most_resident_bytes(gateway.envoy.pid) < limit + 64 * MIB  # its code is mapped and counts too


async def test_many_large_bodies_at_once_are_decided_one_after_another() -> None:
    """Each is 32 MiB on its way to the picker, which held them all."""
    with running_gateway() as gateway:
        name = gateway.endpoint(gateway.backend("a"))
        body = body_of(name, 24 * MIB)
        answers = await asyncio.gather(*(upload(gateway, "HTTP/1.1", body) for _ in range(8)))
        assert all(b"hello from a" in answer or b"gateway_overloaded" in answer for answer in answers)
        assert sum(b"hello from a" in answer for answer in answers) >= 4
        assert most_resident_bytes(gateway.picker.pid) < 256 * MIB
        assert most_resident_bytes(gateway.envoy.pid) < 1024 * MIB
        assert (await post(gateway, name)).status_code == 200


@pytest.mark.extended
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_64_uploads_of_32_mib_that_never_end_keep_envoy_below_1_gib_and_200_streams_whole(
    protocol: str,
) -> None:
    with running_gateway() as gateway:
        await attack(gateway, protocol, uploads=64, size=MAX_BODY_BYTES, running=200)
        envoy, picker = (most_resident_bytes(p.pid) for p in (gateway.envoy, gateway.picker))
        print(f"\n{protocol}: Envoy {envoy / MIB:.0f} MiB, picker {picker / MIB:.0f} MiB at most")
        assert envoy < 1024 * MIB
        assert picker < 256 * MIB


def test_2000_clusters_cost_envoy_little_and_its_counters_stay_few() -> None:
    """Every cluster brought over a hundred counters and gauges for each worker."""
    with running_gateway() as gateway:
        few, before = len(gateway.admin("/stats").splitlines()), resident_bytes(gateway.envoy.pid)
        for n in range(2000):
            gateway.activate(f"many{n}", "r1")
        backend = gateway.backend("a")
        for n in range(2000):
            gateway.replica(f"many{n}", "r1", backend)
        wait_for(lambda: len(gateway.clusters()) == 2000, "Envoy has 2,000 clusters", 120)
        gateway.settled()
        grown = resident_bytes(gateway.envoy.pid) - before
        print(
            f"\n2,000 clusters: {grown / MIB:.0f} MiB, {len(gateway.admin('/stats').splitlines())} counters"
        )
        assert len(gateway.admin("/stats").splitlines()) < few + 100
        assert grown < 160 * MIB
        for n in (0, 1999):
            answer = httpx.post(gateway.url + CHAT, json={"model": f"team/many{n}"}, timeout=60)
            assert answer.status_code == 200
        wait_for(lambda: gateway.revisions("many1999")["r1"]["requests"] == 1, "its request is counted")
        assert gateway.revisions("many1")["r1"]["requests"] == 0
