"""Moves every unfinished batch on, by its status in the database, which is all that a restart finds.

validating: its file is read (again from the start). in_progress: its lines without an answer are sent. finalizing and
cancelling: its files are written (again). What the process did not write down is done again; the database takes an answer
for a line once.
"""

import asyncio
from collections.abc import Coroutine

import structlog

from llmendpoint_batch.core.bounds import IN_FLIGHT
from llmendpoint_batch.core.lines import Fault
from llmendpoint_batch.core.records import Batch
from llmendpoint_batch.core.status import Event, Status, may
from llmendpoint_batch.errors import StorageFailed
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store import batches, lines
from llmendpoint_batch.store.blobs import Blobs
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.work.assembly import write_files
from llmendpoint_batch.work.endpoint import Endpoint
from llmendpoint_batch.work.recording import Recorder
from llmendpoint_batch.work.running import Running
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.times import Times
from llmendpoint_batch.work.validation import Check, read_rows

LOOK_SECONDS = 1.0
JOBS = 2
"""Files that are read or written at a time."""
log = structlog.get_logger()


class Runner:
    def __init__(
        self,
        database: Database,
        blobs: Blobs,
        sender: Sender,
        times: Times,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._database, self._blobs, self._times = database, blobs, times
        self._settings, self._metrics = settings, metrics
        self._recorder = Recorder(database, metrics)
        self._sender = sender
        self._places, self._job_places = asyncio.Semaphore(IN_FLIGHT), asyncio.Semaphore(JOBS)
        self._endpoints: dict[str, Endpoint] = {}
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._jobs: dict[int, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()

    def wake(self) -> None:
        """Something changed: look now."""
        self._wake.set()

    async def run(self) -> None:
        recording = asyncio.create_task(self._recorder.run())
        try:
            while True:
                self._wake.clear()
                try:
                    await self._look()
                except StorageFailed as error:
                    self._full(error)
                except Exception:  # of this program: one batch must not stop the others for ever
                    log.exception("the batches were not all moved on")
                try:
                    await asyncio.wait_for(self._wake.wait(), LOOK_SECONDS)
                except TimeoutError:
                    pass
        finally:
            tasks = [recording, *self._loops.values(), *self._jobs.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for endpoint in self._endpoints.values():
                await asyncio.gather(*(running.stop() for running in endpoint.running.values()))

    async def _look(self) -> None:
        found = await self._database.read(batches.unfinished)
        self._metrics.unfinished.set(len(found))
        age = self._times.age()
        if any(batch.deadline <= age and may(batch.status, Event.RAN_OUT) for batch in found):
            await self._database.write(batches.expire, age, self._times.wall())
            found = await self._database.read(batches.unfinished)
        for batch in found:
            if batch.status is Status.VALIDATING:
                self._do(batch, self._validate(batch))
            elif batch.status is Status.IN_PROGRESS:
                self._send(batch)
            else:
                self._do(batch, self._write(batch))

    def _do(self, batch: Batch, job: Coroutine[None, None, None]) -> None:
        if batch.seq in self._jobs:
            job.close()
            return
        task = self._jobs[batch.seq] = asyncio.create_task(self._job(batch, job))
        task.add_done_callback(lambda _: self._jobs.pop(batch.seq, None))

    async def _job(self, batch: Batch, job: Coroutine[None, None, None]) -> None:
        """What fails is tried again at a later look."""
        try:
            async with self._job_places:
                await job
            self.wake()
        except StorageFailed as error:
            self._full(error)
            await asyncio.sleep(LOOK_SECONDS)
        except Exception:
            log.exception("a batch was not moved on", batch=batch.id, status=batch.status)
            await asyncio.sleep(10 * LOOK_SECONDS)
        finally:
            job.close()

    def _full(self, error: StorageFailed) -> None:
        self._metrics.storage_failures.inc()
        log.error("the storage fails; tried again", error=str(error))

    async def _validate(self, batch: Batch) -> None:
        database, check = self._database, Check(batch.endpoint, self._settings.bounds)
        await database.write(lines.forget, batch)
        rows = read_rows(await asyncio.to_thread(self._blobs.open, batch.input_file_id), check)
        while (some := await asyncio.to_thread(next, rows, None)) is not None:
            if not await database.write(lines.add, batch, some):
                return  # cancelled
        if check.faults:
            await self._reject(batch, check.faults)
        else:
            await database.write(lines.accept, batch.seq, check.model, self._times.wall())

    async def _reject(self, batch: Batch, faults: list[Fault]) -> None:
        delete_at = self._times.age() + self._settings.retention_seconds
        await self._database.write(batches.reject, batch.seq, faults, self._times.wall(), delete_at)

    def _send(self, batch: Batch) -> None:
        endpoint = self._endpoints.get(batch.model)
        if endpoint is None:
            endpoint = self._endpoints[batch.model] = Endpoint(
                self._settings.concurrency, self._places, self._sender, self._recorder, self._blobs,
                self._metrics, self._all_answered,
            )  # fmt: skip
            self._loops[batch.model] = asyncio.create_task(endpoint.run())
        if batch.seq not in endpoint.running and batch.seq not in self._jobs:
            endpoint.join(Running(batch, self._database))

    def _all_answered(self, running: Running) -> None:
        self._do(running.batch, self._finish(running.batch))

    async def _finish(self, batch: Batch) -> None:
        await self._leave(batch)
        await self._database.write(lines.finish, batch.seq, self._times.wall())

    async def _leave(self, batch: Batch) -> None:
        endpoint = self._endpoints.get(batch.model)
        if endpoint is None or batch.seq not in endpoint.running:
            return
        await endpoint.leave(batch.seq)
        if not endpoint.running and self._endpoints.get(batch.model) is endpoint:
            del self._endpoints[batch.model]
            self._loops.pop(batch.model).cancel()

    async def _write(self, batch: Batch) -> None:
        await self._leave(batch)
        wall, age, keep = self._times.wall(), self._times.age(), self._settings.retention_seconds
        made = await self._database.read_long(write_files, self._blobs, batch, wall, age, keep)
        await self._database.write(lines.written, batch, made, wall, age + keep)
        log.info("a batch has ended", batch=batch.id, total=batch.total, late=batch.late)
