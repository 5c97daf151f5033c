"""docs/concepts/verdicts.md: an endpoint at rest is counted in intervals if its new revisions are compared with the old one.

Gateways and engines are real HTTP servers on loopback. An interval takes 50 ms here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from llmendpoint_operator.observe.rollout import intervals
from llmendpoint_operator.observe.rollout.intervals import Intervals

from ..evidence_stage import KEY, RELATIVE, World, until


@pytest.fixture
async def resting(world: World, monkeypatch: pytest.MonkeyPatch) -> Intervals:
    monkeypatch.setattr(intervals, "INTERVAL_S", 0.05)
    found = Intervals(world.wire, world.gateways)
    world.tasks.append(asyncio.create_task(found.run()))
    return found


async def counted(found: Intervals, number: int, count: Callable[[], None]) -> None:
    """Until there are so many intervals with requests; `count` makes requests."""
    while len(found.of(KEY, "blue")) < number:
        count()
        await asyncio.sleep(0.02)


async def test_each_interval_has_the_requests_that_came_in_it(world: World, resting: Intervals) -> None:
    gateway, blue = await world.add_gateway(), await world.add_engine("blue")
    made = 0

    def one() -> None:
        nonlocal made
        made += 10
        gateway.count("team-a/chat", "blue", 10, 1)
        blue.observe(0.07, 10)

    resting.update(world.snapshot("Idle", observe=RELATIVE))
    async with asyncio.timeout(20):
        await counted(resting, 3, one)
    found = resting.of(KEY, "blue")
    assert 0 < sum(figures.requests for figures in found) <= made
    assert all(figures.errors * 10 == figures.requests for figures in found)
    assert sum(figures.ttft.requests for figures in found if figures.ttft is not None) > 0
    assert all(figures.e2e is None and figures.itl is None for figures in found), "only what is compared"
    tails = [figures.ttft.slower for figures in found if figures.ttft is not None]
    assert all(len(set(map(id, slower))) == len(set(slower)) for slower in tails), "each number once"


async def test_without_a_relative_limit_nobody_is_asked(world: World, resting: Intervals) -> None:
    blue = await world.add_engine("blue")
    await world.add_gateway()
    resting.update(world.snapshot("Idle", observe={"ttft": {"p95Seconds": 1}}))
    resting.update(world.snapshot("Idle"))
    assert len(resting) == 0
    await asyncio.sleep(0.2)
    assert blue.scrapes == 0


async def test_a_deleted_endpoint_is_not_asked_any_more(world: World, resting: Intervals) -> None:
    snapshot = world.snapshot("Idle", observe=RELATIVE)
    resting.update(snapshot)
    assert len(resting) == 1
    resting.update(replace(snapshot, endpoint=replace(snapshot.endpoint, deleting=True)))
    assert len(resting) == 0


async def test_pods_that_come_later_are_read_too(world: World, resting: Intervals) -> None:
    await world.add_gateway()
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    blue = await world.add_engine("blue")
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    await until(lambda: blue.scrapes > 0)


async def test_a_limit_on_errors_reads_no_engine(world: World, resting: Intervals) -> None:
    gateway, blue = await world.add_gateway(), await world.add_engine("blue")
    resting.update(world.snapshot("Idle", observe={"errorRate": {"maxIncrease": 0.01}}))
    async with asyncio.timeout(20):
        await counted(resting, 2, lambda: gateway.count("team-a/chat", "blue", 10, 1))
    assert blue.scrapes == 0


async def test_an_idle_endpoint_has_no_intervals(world: World, resting: Intervals) -> None:
    blue = await world.add_engine("blue")
    await world.add_gateway()
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    await until(lambda: blue.scrapes > 3)
    assert resting.of(KEY, "blue") == ()


async def test_another_revision_begins_anew_and_a_rollback_does_not(world: World, resting: Intervals) -> None:
    gateway = await world.add_gateway()
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    async with asyncio.timeout(20):
        await counted(resting, 2, lambda: gateway.count("team-a/chat", "blue", 10, 0))
    resting.update(world.snapshot("Observing", observe=RELATIVE))
    assert len(resting.of(KEY, "blue")) >= 2, "green only gets requests yet"
    assert resting.of(KEY, "green") == ()
    resting.update(world.snapshot("Idle", observe=RELATIVE, blue="green"))
    assert resting.of(KEY, "blue") == resting.of(KEY, "green") == ()


async def test_engines_that_hang_in_one_namespace_hold_up_no_other(world: World, resting: Intervals) -> None:
    gateway = await world.add_gateway()
    for _ in range(12):
        await world.add_engine("blue", mute=True)
    hanging = world.snapshot("Idle", observe=RELATIVE)
    resting.update(hanging)
    await asyncio.sleep(0.05)
    resting.update(replace(hanging, endpoint=replace(hanging.endpoint, namespace="team-b"), pods={}))
    async with asyncio.timeout(20):
        while len(resting.of(("team-b", "chat"), "blue")) < 2:
            gateway.count("team-b/chat", "blue", 10, 0)
            await asyncio.sleep(0.02)
    assert resting.of(KEY, "blue") == ()


async def test_an_endpoint_whose_engines_hang_is_not_read_again_meanwhile(
    world: World, resting: Intervals
) -> None:
    await world.add_gateway()
    for _ in range(4):
        await world.add_engine("blue", mute=True)
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    for _ in range(20):
        await asyncio.sleep(0.02)
        assert sum(task.get_name().startswith("interval ") for task in asyncio.all_tasks()) <= 1


async def test_pods_that_are_gone_are_forgotten(world: World, resting: Intervals) -> None:
    gateway, gone = await world.add_gateway(), await world.add_engine("blue")
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    await until(lambda: gone.scrapes > 1)
    known = resting._resting[KEY].measurements
    assert len(known._engines) == 1
    resting.update(replace(world.snapshot("Idle", observe=RELATIVE), pods={}))
    async with asyncio.timeout(20):
        await counted(resting, 2, lambda: gateway.count("team-a/chat", "blue", 10, 0))
    assert not known._engines
    assert known._gateways, "the gateway is still there"


async def test_a_kept_number_of_intervals_is_bounded(
    world: World, resting: Intervals, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = await world.add_gateway()
    resting.update(world.snapshot("Idle", observe=RELATIVE))
    async with asyncio.timeout(30):
        await counted(resting, intervals.MOST, lambda: gateway.count("team-a/chat", "blue", 10, 0))
        first = resting.of(KEY, "blue")[0]
        while resting.of(KEY, "blue")[0] is first:
            gateway.count("team-a/chat", "blue", 10, 0)
            await asyncio.sleep(0.02)
    assert len(resting.of(KEY, "blue")) == intervals.MOST


async def test_the_hours_at_rest_are_in_the_figures_that_a_new_revision_is_compared_with(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intervals, "INTERVAL_S", 0.05)
    gateway = await world.add_gateway()
    world.look(world.snapshot("Idle", observe=RELATIVE))
    hours = world.collector._intervals
    await asyncio.sleep(0.1)
    async with asyncio.timeout(20):
        await counted(hours, 8, lambda: gateway.count("team-a/chat", "blue", 100, 1))
    before = world.snapshot("Warming", observe=RELATIVE)
    await until(lambda: "blue" in world.look(before).figures)
    assert world.look(before).figures["blue"].requests > 400
