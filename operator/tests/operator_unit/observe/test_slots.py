"""docs/concepts/rollouts.md: verification has 64 slots, a bound for each namespace, and turns among namespaces."""

from __future__ import annotations

import asyncio

from llmendpoint_operator.observe.slots import Slots


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_namespaces_take_turns_when_slots_are_scarce() -> None:
    slots, order = Slots(1, 1), []

    async def ask(namespace: str) -> None:
        await slots.enter(namespace)
        order.append(namespace)
        await asyncio.sleep(0)
        slots.leave(namespace)

    tasks = [asyncio.create_task(ask(ns)) for ns in ("a", "a", "a", "b", "c", "b")]
    await asyncio.gather(*tasks)
    assert order == ["a", "a", "b", "c", "a", "b"], "the second asked before anybody else did"


async def test_who_gives_up_waiting_takes_no_slot_along() -> None:
    slots = Slots(1, 1)
    await slots.enter("a")
    waiting = [asyncio.create_task(slots.enter("a")) for _ in range(3)]
    await settle()
    slots.leave("a")
    waiting[0].cancel()  # its turn has just come
    waiting[1].cancel()
    await settle()
    assert waiting[2].done()
    slots.leave("a")
    await settle()
    assert slots._queues == {}
    assert slots._held == {}


async def test_a_namespace_alone_has_most_slots_and_gives_way_as_its_questions_end() -> None:
    slots = Slots(32, 8, spare=8)
    alone = [asyncio.create_task(slots.enter("a")) for _ in range(100)]
    await settle()
    assert slots._held["a"] == 24
    others = [asyncio.create_task(slots.enter(name)) for _ in range(8) for name in ("b", "c")]
    await settle()
    assert slots._held == {"a": 24, "b": 4, "c": 4}, "at once"
    for _ in range(8):
        slots.leave("a")
    await settle()
    assert slots._held == {"a": 16, "b": 8, "c": 8}
    for task in (*alone, *others):
        task.cancel()
