"""The lines of one endpoint, of all batches for it: one loop that sends them as its lane allows."""

import asyncio
import random
import time
from collections.abc import Callable

import structlog

from llmendpoint_batch.core.lane import Lane, Refusals
from llmendpoint_batch.core.lines import Fault
from llmendpoint_batch.core.outcomes import Again, Broken, Keep, Reply, judge
from llmendpoint_batch.core.records import Pending, request_id
from llmendpoint_batch.errors import StorageFailed
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.store.blobs import Blobs
from llmendpoint_batch.store.lines import Answered
from llmendpoint_batch.work.recording import Recorder
from llmendpoint_batch.work.running import Running
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.validation import body_of

log = structlog.get_logger()


class Endpoint:
    """`places`: of all endpoints together. `done` is told of a batch whose lines are all answered."""

    def __init__(
        self,
        most: int,
        places: asyncio.Semaphore,
        sender: Sender,
        recorder: Recorder,
        blobs: Blobs,
        metrics: Metrics,
        done: Callable[[Running], None],
    ) -> None:
        self.running: dict[int, Running] = {}
        self._lane, self._places = Lane(most), places
        self._sender, self._recorder, self._blobs, self._metrics = sender, recorder, blobs, metrics
        self._done = done
        self._changed = asyncio.Event()

    def join(self, running: Running) -> None:
        self.running[running.batch.seq] = running
        self._lane.join(running.batch.seq)
        self._changed.set()

    async def leave(self, seq: int) -> None:
        self._lane.leave(seq)
        running = self.running.pop(seq)
        await running.stop()

    async def run(self) -> None:
        while True:
            await self._room()
            seconds = self._rejoin(time.monotonic())
            seq = self._lane.turn()
            if seq is None:
                await self._next_change(seconds)
                continue
            running = self.running[seq]
            line = await running.next_line(time.monotonic())
            if self.running.get(seq) is not running:
                continue  # it left meanwhile
            if line is None:
                self._lane.leave(seq)
                self._look(running)
                continue
            self._start(running, line)

    def _rejoin(self, now: float) -> float | None:
        """Batches whose lines have stepped back long enough take turns again. Seconds until the next one; None: there is none."""
        times = {seq: at for seq, running in self.running.items() if (at := running.earliest) is not None}
        for seq, at in times.items():
            if at <= now:
                self._lane.join(seq)
        return max(0.0, min(times.values()) - now) if times else None

    async def _room(self) -> None:
        while (seconds := self._lane.seconds(time.monotonic())) != 0:
            await self._next_change(seconds)

    async def _next_change(self, seconds: float | None) -> None:
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), seconds)
        except TimeoutError:
            pass

    def _start(self, running: Running, line: Pending) -> None:
        self._lane.sent()
        task = asyncio.create_task(self._one(running, line))
        running.tasks.add(task)
        task.add_done_callback(lambda _: self._ended(running, task))

    def _ended(self, running: Running, task: asyncio.Task[None]) -> None:
        running.tasks.discard(task)
        self._lane.ended()
        self._changed.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a line was not sent to its end", exc_info=error)
        self._look(running)

    def _look(self, running: Running) -> None:
        if running.done and self.running.get(running.batch.seq) is running:
            self._done(running)

    async def _one(self, running: Running, line: Pending) -> None:
        try:
            async with self._places:
                result = await self._sent(running, line)
            verdict = judge(result, running.broken.get(line.number, 0))
            if isinstance(verdict, Keep):
                self._lane.answered()
                running.refusals.pop(line.number, None)
                batch = running.batch
                await self._recorder.record(Answered(batch.seq, batch.id, line, verdict))
                return
            self._again(running, line, verdict)
        except StorageFailed as error:
            log.warning("a line waits for the database", batch=running.batch.id, error=str(error))
            self._again(running, line, Again(busy=True, counts=False))
        except Exception:  # of this program: it must not end the batch, nor go on for ever
            log.exception("a line failed", batch=running.batch.id, line=line.number)
            self._again(running, line, Again(busy=True, counts=True))

    def _again(self, running: Running, line: Pending, verdict: Again) -> None:
        self._metrics.attempts_again.inc()
        if verdict.counts:
            running.broken[line.number] = running.broken.get(line.number, 0) + 1
        if verdict.busy and not verdict.counts:
            self._refused(running, line, verdict)
        else:
            self._lane.busy(time.monotonic(), verdict.seconds, random.random())
            running.come_back(line)
        if self.running.get(running.batch.seq) is running:
            self._lane.join(running.batch.seq)

    def _refused(self, running: Running, line: Pending, verdict: Again) -> None:
        refusals = running.refusals.setdefault(line.number, Refusals())
        now = time.monotonic()
        if not refusals.again(self._lane.answers):
            self._lane.busy(now, verdict.seconds, random.random())
        if pause := refusals.pause(verdict.seconds, random.random()):
            running.step_back(line, now + pause)
        else:
            running.come_back(line)

    async def _sent(self, running: Running, line: Pending) -> Reply | Broken:
        batch = running.batch
        text = await asyncio.to_thread(self._blobs.read, batch.input_file_id, line.offset, line.length)
        body = body_of(text, line.number, batch.endpoint)
        if isinstance(body, Fault):  # the volume lost or changed what was valid
            return Broken(body.message, sent=False, code="input_lost", final=True)
        with self._metrics.in_flight.track_inprogress():
            return await self._sender.send(batch.endpoint, body, request_id(batch.id, line.number))
