"""`GET /demand`: the stream that tells the operator of waiting requests at once, and of other changes soon."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
from aiohttp import web

from llmendpoint_gateway.core.placement.demand import (
    Circuit,
    EndpointDemand,
    Reader,
    ReplicaDemand,
    as_json,
)
from llmendpoint_gateway.core.placement.placement import Placement
from llmendpoint_gateway.core.placement.routing import cluster_name
from llmendpoint_gateway.core.placement.waiting import Waiting

PERIOD_SECONDS = 0.2
AT_ONCE = 64
"""Endpoints of a line that are described before others of this loop, such as decisions, get their turn: about 2 ms."""
SILENCE_SECONDS = 0.9
"""The contract says one second; a line takes a moment to arrive."""


class DemandStream:
    """Serves any number of readers. Without readers it costs one wake-up per period. `clock`: seconds, monotonic.
    `instance`: new at every start of the picker."""

    def __init__(self, placement: Placement, waiting: Waiting[Any], clock: Callable[[], float]) -> None:
        self._placement, self._waiting, self._clock = placement, waiting, clock
        self._zero = datetime.now(UTC) - timedelta(seconds=clock())
        self.instance = str(uuid.uuid4())
        self._readers: dict[Reader, asyncio.Event] = {}
        self._closing = False

    async def run(self) -> None:
        """Tell the readers what changed in each period."""
        while True:
            await asyncio.sleep(PERIOD_SECONDS)
            if changed := self._placement.take_changed():
                for reader, awake in self._readers.items():
                    reader.touch(changed)
                    awake.set()

    async def close(self, _app: web.Application) -> None:
        """End the readers' responses, so that a stop does not wait for them."""
        self._closing = True
        for awake in self._readers.values():
            awake.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        reader = Reader()
        awake = self._readers[reader] = asyncio.Event()
        try:
            async for line in self._lines(reader, awake):
                await response.write(line)
        except ConnectionError:
            pass  # the reader went away
        finally:
            del self._readers[reader]
        return response

    async def _lines(self, reader: Reader, awake: asyncio.Event) -> AsyncIterator[bytes]:
        known = await self._news(reader, list(self._placement.view.endpoints))
        first = {"instance": self.instance, "endpoints": known}
        yield orjson.dumps(first) + b"\n"
        told = self._clock()
        while not self._closing:
            try:
                async with asyncio.timeout(told + SILENCE_SECONDS - self._clock()):
                    await awake.wait()
            except TimeoutError:
                pass
            awake.clear()
            news = await self._news(reader, list(reader.pending))
            now = self._clock()
            if news or now >= told + SILENCE_SECONDS:
                told = now
                yield orjson.dumps({"endpoints": news} if news else {}) + b"\n"

    async def _news(self, reader: Reader, keys: Sequence[str]) -> dict[str, Any]:
        """What is new of these endpoints, as JSON. Those that change meanwhile are in the next line."""
        news: dict[str, Any] = {}
        in_flight = self._in_flight() if keys else {}
        for first in range(0, len(keys), AT_ONCE):
            if first:
                await asyncio.sleep(0)
            part = keys[first : first + AT_ONCE]
            present = {key: self._endpoint(key, in_flight.get(key, 0)) for key in part}
            news |= as_json(reader.news(present), self._clock())
        return news

    def first_wait(self, key: str) -> None:
        """The first request waits for this endpoint: tell the readers at once."""
        for reader, awake in self._readers.items():
            if reader.begins_to_wait(key):
                reader.touch([key])
                awake.set()

    def _in_flight(self) -> dict[str, int]:
        """By endpoint."""
        placement = self._placement
        in_flight: dict[str, int] = {}
        for cluster, counts in placement.in_flight.counts.items():
            endpoint = cluster.rpartition("/")[0]
            in_flight[endpoint] = in_flight.get(endpoint, 0) + sum(counts.values())
        return in_flight

    def _endpoint(self, key: str, in_flight: int) -> EndpointDemand | None:
        placement = self._placement
        if key not in placement.view.endpoints:
            return None
        replicas = []
        for revision, members in placement.revisions(key).items():
            cluster = cluster_name(key, revision)
            for replica in members:
                reading = placement.loads.of(replica.address)
                load, read_at = reading if reading else (None, 0.0)
                busy = placement.in_flight.of(cluster, replica.address)
                replicas.append(ReplicaDemand(replica.pod, busy, load, read_at))
        state = placement.circuits.state(key, self._clock())
        since = self._time_of(state.since)
        circuit = Circuit(state.standing.value, since, state.requests, state.errors)
        return EndpointDemand(self._waiting.count(key), in_flight, circuit, tuple(replicas))

    def _time_of(self, seconds: float) -> str:
        """A moment of the clock in RFC 3339."""
        moment = self._zero + timedelta(seconds=seconds)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
