"""docs/concepts/architecture.md: one reconcile per endpoint: no key is worked on twice at a time, and none is forgotten."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from llmendpoint_operator import workqueue
from llmendpoint_operator.core.names import Key
from llmendpoint_operator.workqueue import WorkQueue

A, B = ("ns", "a"), ("ns", "b")


@contextlib.asynccontextmanager
async def running(work: Callable[[Key], Awaitable[float | None]]) -> AsyncIterator[WorkQueue]:
    queue = WorkQueue(work, workers=3)
    task = asyncio.create_task(queue.run())
    yield queue
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the conditions are on plain lists
            await asyncio.sleep(0.001)


async def test_a_key_woken_while_it_is_worked_on_is_looked_at_once_more_and_not_at_the_same_time() -> None:
    looks: list[Key] = []
    busy: set[Key] = set()
    gate = asyncio.Event()

    async def work(key: Key) -> None:
        assert key not in busy
        busy.add(key)
        looks.append(key)
        await gate.wait()
        busy.discard(key)

    async with running(work) as queue:
        queue.add(A)
        await until(lambda: looks == [A])
        for _ in range(5):
            queue.add(A)
        queue.add(B)
        await until(lambda: looks == [A, B])
        gate.set()
        await until(lambda: looks == [A, B, A])
        await asyncio.sleep(0.05)
        assert looks == [A, B, A]


async def test_a_failing_key_is_tried_again_and_others_go_on() -> None:
    looks: list[Key] = []

    async def work(key: Key) -> None:
        looks.append(key)
        if key == A and looks.count(A) < 3:
            raise RuntimeError("not yet")

    async with running(work) as queue:
        queue.add(A)
        queue.add(B)
        await until(lambda: looks.count(A) == 3)
        assert looks.count(B) == 1


async def test_a_key_that_fails_for_days_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Doubled so often, the pause would be no number that anybody can wait for."""
    monkeypatch.setattr(workqueue, "LAST_RETRY_S", 0.0)
    failures = 0

    async def work(key: Key) -> None:
        nonlocal failures
        failures += 1
        raise RuntimeError("not yet")

    async with running(work) as queue:
        queue.add(A)
        await until(lambda: failures > 1_100)


async def test_a_delay_is_kept_unless_something_wakes_the_key_before() -> None:
    looks: list[Key] = []

    async def work(key: Key) -> float | None:
        looks.append(key)
        return 3600.0 if len(looks) == 1 else None

    async with running(work) as queue:
        queue.add(A)
        await until(lambda: len(looks) == 1)
        await asyncio.sleep(0.02)
        assert len(looks) == 1
        queue.add(A)
        await until(lambda: len(looks) == 2)


async def test_thousands_of_looks_that_never_wait_let_the_lease_be_renewed_meanwhile() -> None:
    looked = 0
    turns: list[int] = []

    async def work(_: Key) -> None:
        nonlocal looked
        looked += 1

    async def something_else() -> None:
        while True:
            turns.append(looked)
            await asyncio.sleep(0)

    async with running(work) as queue:
        for number in range(1000):
            queue.add(("ns", f"chat-{number}"))
        other = asyncio.create_task(something_else())
        await until(lambda: looked == 1000)
        other.cancel()
    longest = max(after - before for before, after in itertools.pairwise(turns))
    assert longest <= 3, f"{longest} looks in a row by 3 workers"
