"""Background responses: sent as their endpoint has room, until each has its end.

What the database says is all that a restart finds: a response that was being sent is sent again, and one that was
cancelled or deleted meanwhile keeps no answer.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Concatenate, ParamSpec, TypeVar

import structlog

from llmendpoint_batch.core.bounds import COPIES, IN_FLIGHT, SENT_BYTES
from llmendpoint_batch.core.lane import Lane
from llmendpoint_batch.core.outcomes import MOST_ATTEMPTS, Broken, Keep, Reply, judge
from llmendpoint_batch.core.response_items import decode_items
from llmendpoint_batch.core.response_object import Final, Stored, failed, failed_by, final_of
from llmendpoint_batch.core.response_request import is_stream, read_fields, upstream_body
from llmendpoint_batch.errors import Refused, StorageFailed
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store import responses
from llmendpoint_batch.store.connection import Connection
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.work.event_log import EventLog
from llmendpoint_batch.work.sending import LOW, RESPONSES, Sender
from llmendpoint_batch.work.streaming import streamed
from llmendpoint_batch.work.times import Times

P = ParamSpec("P")
T = TypeVar("T")
LOOK_SECONDS = 1.0
log = structlog.get_logger()


class Background:
    """`live`: the ids of all responses that this process is bringing to their end, those whose callers wait included."""

    def __init__(
        self, database: Database, sender: Sender, times: Times, settings: Settings, metrics: Metrics
    ) -> None:
        self._database, self._sender, self._times = database, sender, times
        self._settings, self._metrics = settings, metrics
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sizes: dict[str, int] = {}
        """Of those under way, the bytes that they take in memory."""
        self._lanes: dict[str, Lane] = {}
        self._broken: dict[str, int] = {}
        """Response -> attempts that broke."""
        self._wake = asyncio.Event()
        self.events = EventLog(database, settings.bounds.responses_bytes, metrics)
        self.live: set[str] = set()

    def wake(self) -> None:
        """Something changed: look now."""
        self._wake.set()

    def stop(self, response_id: str) -> None:
        """It was cancelled or deleted: its answer is not wanted any more."""
        if task := self._tasks.get(response_id):
            task.cancel()
        self.events.changed(response_id)

    def keep_until(self) -> float:
        return self._times.age() + self._settings.retention_seconds

    async def run(self) -> None:
        writing = asyncio.create_task(self.events.run())
        try:
            again = await self._until_kept(responses.requeue, self.keep_until())
            log.info("background responses are sent again", responses=again)
            while True:
                self._wake.clear()
                seconds = LOOK_SECONDS
                try:
                    seconds = await self._look()
                except StorageFailed as error:
                    self._metrics.storage_failures.inc()
                    log.error("the storage fails; tried again", error=str(error))
                except Exception:  # of this program: it must not stop all responses for ever
                    log.exception("the background responses were not all sent")
                try:
                    await asyncio.wait_for(self._wake.wait(), seconds)
                except TimeoutError:
                    pass
        finally:
            tasks = [writing, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self) -> float:
        """Seconds until the next look."""
        live = self.live | self._tasks.keys()
        await self._database.write(responses.fail_lost, live, self._times.age(), self.keep_until())
        found, soonest, now = await self._database.read(responses.waiting), LOOK_SECONDS, time.monotonic()
        for response_id, model, size in found:
            if response_id in self._tasks or len(self._tasks) >= IN_FLIGHT:
                continue
            if sum(self._sizes.values()) + COPIES * size > SENT_BYTES:
                continue  # a shorter one goes meanwhile; each that ends wakes this
            lane = self._lanes.setdefault(model, Lane(self._settings.concurrency))
            seconds = lane.seconds(now)
            if seconds == 0:
                self._start(response_id, lane, COPIES * size)
            elif seconds is not None:
                soonest = min(soonest, seconds)
        self._metrics.background.set(len({*self._tasks, *(response_id for response_id, _, _ in found)}))
        ids, waits = {response_id for response_id, _, _ in found}, {model for _, model, _ in found}
        self._broken = {key: n for key, n in self._broken.items() if key in ids or key in self._tasks}
        self._lanes = {model: lane for model, lane in self._lanes.items() if lane.in_flight or model in waits}
        return soonest

    def _start(self, response_id: str, lane: Lane, size: int) -> None:
        lane.sent()
        self._sizes[response_id] = size
        task = self._tasks[response_id] = asyncio.create_task(self._one(response_id, lane))

        def ended(_: asyncio.Task[None]) -> None:
            self._tasks.pop(response_id, None)
            self._sizes.pop(response_id, None)
            lane.ended()
            self.wake()

        task.add_done_callback(ended)

    async def _one(self, response_id: str, lane: Lane) -> None:
        """Whatever happens, it has its end or waits again: nobody else would look at one that is in progress."""
        try:
            await self._attempt(response_id, lane)
        except StorageFailed as error:
            log.error("a background response waits for the storage", response=response_id, error=str(error))
            await self._wait_again(response_id)
        except Exception:  # of this program: it must not go on for ever
            log.exception("a background response failed", response=response_id)
            self._broken[response_id] = self._broken.get(response_id, 0) + 1
            lane.busy(time.monotonic(), None, random.random())
            await self._wait_again(response_id)

    async def _attempt(self, response_id: str, lane: Lane) -> None:
        stored = await self._database.write(responses.begin, response_id)
        if stored is None:
            return
        broken = self._broken.get(response_id, 0)
        if broken >= MOST_ATTEMPTS:
            await self._keep(
                response_id, failed(stored, "The service failed at this response. Its log says why.")
            )
            return
        try:
            body = await self._body(stored)
            stored = replace(stored, items=b"")
            result = await self._sent(stored, body)
            if isinstance(result, Final):  # of a stream
                lane.answered()
                await self._keep(response_id, result)
                return
        except Refused as refused:  # what it continues was deleted while it waited
            await self._keep(response_id, failed(stored, refused.message, "invalid_prompt"))
            return
        verdict = judge(result, broken)
        if isinstance(verdict, Keep):
            lane.answered()
            await self._keep(response_id, _final(stored, result))
            return
        self._metrics.attempts_again.inc()
        if verdict.counts:
            self._broken[response_id] = broken + 1
        lane.busy(time.monotonic(), verdict.seconds, random.random())
        await self._wait_again(response_id)

    async def _body(self, stored: Stored) -> bytes:
        before = await self._database.read(responses.conversation, stored.previous)
        own = decode_items(stored.items)
        return await asyncio.to_thread(upstream_body, read_fields(stored.fields), before, own)

    async def _sent(self, stored: Stored, body: bytes) -> Reply | Broken | Final:
        with self._metrics.in_flight.track_inprogress():
            if is_stream(read_fields(stored.fields)):
                return await streamed(self._sender, self.events, stored, body)
            return await self._sender.send(RESPONSES, body, stored.id, stored.priority or LOW)

    async def _keep(self, response_id: str, final: Final) -> None:
        await self._until_kept(responses.finish, response_id, final, self.keep_until())
        self.events.changed(response_id)

    async def _wait_again(self, response_id: str) -> None:
        await self._until_kept(responses.wait_again, response_id, self.keep_until())
        self.events.changed(response_id)

    async def _until_kept(
        self, do: Callable[Concatenate[Connection, P], T], *args: P.args, **named: P.kwargs
    ) -> T:
        tries = 0
        while True:
            try:
                return await self._database.write(do, *args, **named)
            except StorageFailed as error:
                self._metrics.storage_failures.inc()
                if tries == 0:  # each of hundreds would say so each second
                    log.error("an answer waits for the storage", error=str(error))
                tries += 1
                await asyncio.sleep(LOOK_SECONDS)


def _final(stored: Stored, result: Reply | Broken) -> Final:
    if isinstance(result, Reply) and 200 <= result.status < 300:
        final = final_of(stored, result.body)
        return final or failed(stored, "The endpoint's answer is no response object at its end.")
    return failed_by(stored, result)
