"""docs/concepts/rollouts.md: pods that never answer delay their own namespace alone, in every kind of question to pods."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast

import pytest

from llmendpoint_operator.core.endpoint.snapshot import Snapshot
from llmendpoint_operator.observe.models.progress import Progress
from llmendpoint_operator.observe.scaling.first_tokens import FirstTokenTimes
from llmendpoint_operator.observe.scaling.loads import EngineLoads
from llmendpoint_operator.observe.targets import Target
from llmendpoint_operator.observe.wire import Wire

from ..evidence_stage import World, ready_pod, staged, until

ENDPOINTS, PODS = 4, 50
ROUNDS = 20
KEY = ("team-a", "chat")


class Hung:
    """In place of the wire: engines whose address begins with hung never answer, the others at once."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    async def text(self, _: str, url: str, *__: object) -> str:
        self.asked[url] += 1
        if url.startswith("http://hung"):
            await asyncio.Event().wait()
        return ""

    async def json(self, kind: str, url: str, timeout_s: float) -> Any:
        await self.text(kind, url, timeout_s)
        return {"running": 0, "waiting": 0, "kv_usage": 0, "max_num_seqs": 1}


def pods(host: str, count: int) -> list[Target]:
    return [Target(f"p{i}", f"{host}-{i}", "r1", f"http://{host}-{i}") for i in range(count)]


def follow(asking: FirstTokenTimes | EngineLoads) -> None:
    for number in range(ENDPOINTS):
        asking.follow(("hung", f"e{number}"), pods(f"hung-{number}", PODS), 0.001)
    asking.follow(KEY, pods("chat", 1), 0.001)


async def test_first_tokens_are_read_on_time_beside_a_namespace_that_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("llmendpoint_operator.observe.scaling.first_tokens.TICK_S", 0.001)
    wire = Hung()
    times = FirstTokenTimes(cast(Wire, wire))
    follow(times)
    running = asyncio.create_task(times.run())
    await until(lambda: wire.asked["http://chat-0/metrics"] >= ROUNDS)
    assert sum(count for url, count in wire.asked.items() if "hung" in url) <= 24, "its slots"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "rota" and not task.cancelling()]


async def test_loads_are_read_on_time_beside_a_namespace_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "llmendpoint_operator.observe.scaling.rota.STALE_INTERVALS", 1e6
    )  # rounds count here, not seconds
    wire = Hung()
    loads = EngineLoads(cast(Wire, wire))
    follow(loads)
    for _ in range(20 * ROUNDS):
        loads.ask_due()
        await asyncio.sleep(0.001)
    assert wire.asked["http://chat-0/load"] >= ROUNDS
    assert set(loads.reports(KEY)) == {"p0"}
    loads.stop()


async def test_downloads_that_tell_no_progress_leave_the_connections_to_others() -> None:
    """As those of a namespace whose NetworkPolicy lets nobody in."""
    wire = Hung()
    progress = Progress(cast(Wire, wire), print)
    keys = [("hung", f"e{number}") for number in range(ENDPOINTS * PODS)]
    for key in keys:
        progress.follow(key, f"hung-{key[1]}")
    progress.follow(KEY, "chat")
    await until(lambda: wire.asked["http://chat:8091/progress"] >= 1)
    assert sum(count for url, count in wire.asked.items() if "hung" in url) <= 24, "its slots"
    for key in (*keys, KEY):
        progress.follow(key, None)


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    async with staged(monkeypatch) as found:
        yield found


async def test_rollouts_are_measured_on_time_beside_a_namespace_that_hangs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, plain = await world.add_engine("green"), world.wire.text
    addresses = {f"127.9.{number}.{pod + 1}" for number in range(ENDPOINTS) for pod in range(PODS)}

    async def text(kind: str, url: str, *rest: Any, **more: Any) -> str:
        if any(f"//{address}:" in url for address in addresses):
            await asyncio.Event().wait()
        return await plain(kind, url, *rest, **more)

    monkeypatch.setattr(world.wire, "text", text)
    for number in range(ENDPOINTS):
        world.look(hung(world.snapshot("Observing"), number))
    mine = world.snapshot("Observing")
    await until(lambda: bool(world.look(mine)) and engine.scrapes >= ROUNDS)


def hung(snapshot: Snapshot, number: int) -> Snapshot:
    """Another endpoint, all of whose pods hang."""
    green = tuple(ready_pod(f"e{number}-{pod}", f"127.9.{number}.{pod + 1}") for pod in range(PODS))
    endpoint = replace(snapshot.endpoint, namespace="team-z", name=f"e{number}")
    return replace(snapshot, endpoint=endpoint, pods={"green": green})
