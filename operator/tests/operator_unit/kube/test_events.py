"""docs/contribute/contracts.md: a repeated Event is counted, Events of one endpoint are bounded, and a restart repeats none."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from llmendpoint_operator.core.endpoint.series import BURST, REFILL_SECONDS, SeriesBook
from llmendpoint_operator.core.endpoint.snapshot import Endpoint
from llmendpoint_operator.core.endpoint.steps import Event
from llmendpoint_operator.errors import ApiError, Conflict, NotFound
from llmendpoint_operator.kube.client import KubeApi
from llmendpoint_operator.kube.events import EventWriter

from ..fake_cluster import make_spec

ENDPOINT = Endpoint("team-a", "chat", "uid-1", 1, "1", False, make_spec())
OTHER = Endpoint("team-a", "other", "uid-2", 1, "1", False, make_spec())


class EventStore:
    """The Events of an API server."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}
        self.writes = 0
        self.failures: list[ApiError] = []

    async def create(self, _: object, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        if self.failures:
            raise self.failures.pop()
        name = body["metadata"]["name"]
        if name in self.events:
            raise Conflict(409, "exists")
        self.events[name] = body
        return body

    async def get(self, _: object, namespace: str, name: str) -> dict[str, Any]:
        if name not in self.events:
            raise NotFound(404, "gone")
        return self.events[name]

    async def merge(self, _: object, namespace: str, name: str, change: dict[str, Any]) -> dict[str, Any]:
        self.writes += 1
        self.events[name] |= change
        return self.events[name]

    def counts(self) -> dict[str, int]:
        return {event["message"]: event["count"] for event in self.events.values()}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def writer(store: EventStore, clock: Clock) -> EventWriter:
    return EventWriter(cast(KubeApi, store), clock=clock)


async def written(events: EventWriter) -> None:
    """Let it write all that waits."""
    running = asyncio.create_task(events.run())
    for _ in range(200):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_the_same_event_again_counts_up_the_one_that_is_there() -> None:
    store, clock = EventStore(), Clock()
    events = writer(store, clock)
    for _ in range(3):
        events.write(ENDPOINT, Event("ChildRestored", "Service chat put back", "Warning"))
        await written(events)
    assert store.counts() == {"Service chat put back": 3}


async def test_what_came_again_before_it_was_written_is_one_write() -> None:
    store = EventStore()
    events = writer(store, Clock())
    for _ in range(5):
        events.write(ENDPOINT, Event("ChildRestored", "put back"))
    await written(events)
    assert store.counts() == {"put back": 5}
    assert store.writes == 1


async def test_the_next_operator_counts_up_what_the_last_one_wrote() -> None:
    store = EventStore()
    for _ in range(2):
        events = writer(store, Clock())
        events.write(ENDPOINT, Event("RevisionActivated", "revision a gets requests now"))
        await written(events)
    assert store.counts() == {"revision a gets requests now": 2}


async def test_an_endpoint_that_says_too_much_is_held_back_and_others_are_not() -> None:
    store, clock = EventStore(), Clock()
    events = writer(store, clock)
    for i in range(3 * BURST):
        events.write(ENDPOINT, Event("Flood", f"number {i}"))
    events.write(OTHER, Event("RevisionActivated", "heard"))
    events.write(ENDPOINT, Event("RolledBack", "a warning comes through", "Warning"))
    await written(events)
    assert len(store.counts()) == BURST + 2
    assert {"heard", "a warning comes through"} <= set(store.counts())
    clock.now += 2 * REFILL_SECONDS
    for i in range(5):
        events.write(ENDPOINT, Event("Flood", f"later {i}"))
    await written(events)
    assert len(store.counts()) == BURST + 4


async def test_what_was_held_back_is_counted_with_the_next_of_its_kind() -> None:
    store, clock = EventStore(), Clock()
    events = writer(store, clock)
    for _ in range(BURST + 10):
        events.write(ENDPOINT, Event("Flood", "again"))
        await written(events)
    assert store.counts() == {"again": BURST}
    clock.now += REFILL_SECONDS
    events.write(ENDPOINT, Event("Flood", "again"))
    await written(events)
    assert store.counts() == {"again": BURST + 11}


async def test_a_refused_event_stops_nothing() -> None:
    store = EventStore()
    store.failures = [ApiError(0, "no answer")]
    events = writer(store, Clock())
    events.write(ENDPOINT, Event("Lost", "lost"))
    events.write(ENDPOINT, Event("Kept", "kept"))
    await written(events)
    assert store.counts() == {"kept": 1}


async def test_a_long_message_is_cut_to_what_the_api_server_takes() -> None:
    store = EventStore()
    events = writer(store, Clock())
    events.write(ENDPOINT, Event("Long", "x" * 5000))
    await written(events)
    assert [len(message) for message in store.counts()] == [1024]


def test_the_book_forgets_what_was_said_long_ago() -> None:
    book = SeriesBook()
    for i in range(5000):
        book.say(f"uid-{i}", Event("A", "b"), 0.0)
    assert len(book._series) == len(book._buckets) == 4096
