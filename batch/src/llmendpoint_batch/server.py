"""The process: the database, the runner, and the two ports."""

import asyncio
import signal
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from aiohttp import web

from llmendpoint_batch.api.app import make_api, make_state
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.errors import InUse
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store.database import Database
from llmendpoint_batch.store.opening import open_storage
from llmendpoint_batch.work.background import Background
from llmendpoint_batch.work.housekeeping import keep_house
from llmendpoint_batch.work.runner import Runner
from llmendpoint_batch.work.sending import Sender
from llmendpoint_batch.work.times import Times

CLOSE_SECONDS = 20.0
"""In which answers that callers wait for may end. It is below the pod's 30 s."""
log = structlog.get_logger()
T = TypeVar("T")


@dataclass(slots=True)
class _State:
    """What /readyz goes by."""

    database: Database | None = None
    serving: bool = False
    waits_for: str = "waits for the database, or for the process that has it"

    def tell(self, why: str) -> None:
        self.waits_for = why

    def not_ready(self) -> str:
        if self.database is None:
            return self.waits_for
        return self.database.away or ("" if self.serving else "starts")


async def serve(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Lines under way are sent again by the next process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics, state = Metrics(), _State()
    async with AsyncExitStack() as stack:
        await _listen(stack, make_state(metrics, state.not_ready), settings, settings.state_port)
        opened = await _unless(stop, open_storage(settings.data, settings.database, state.tell))
        if opened is None:
            return
        state.database = database = opened.database
        stack.callback(database.close)
        blobs, times = opened.blobs, Times(opened.saved)
        sender = Sender(settings.gateway, settings.request_seconds)
        await sender.open()
        stack.push_async_callback(sender.close)
        runner = Runner(database, blobs, sender, times, settings, metrics)
        background = Background(database, sender, times, settings, metrics)
        service = Service(database, blobs, sender, background, times, settings, runner.wake)
        await _listen(stack, make_api(service), settings, settings.port)
        state.serving = True
        log.info("started", port=settings.port, gateway=settings.gateway, swept_files=opened.swept)
        works = [
            asyncio.create_task(runner.run()),
            asyncio.create_task(background.run()),
            asyncio.create_task(keep_house(database, blobs, times, metrics)),
        ]
        ends = [asyncio.create_task(stop.wait()), asyncio.create_task(database.taken.wait())]
        done, _ = await asyncio.wait([*works, *ends], return_when=asyncio.FIRST_COMPLETED)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for task in done:
            task.result()  # no work ends by itself, so its error is the process's
        if database.taken.is_set():
            raise InUse("another process has served from this database meanwhile; this one ends")
    log.info("stopped")


async def _listen(stack: AsyncExitStack, app: web.Application, settings: Settings, port: int) -> None:
    listening = web.AppRunner(app, access_log=None, shutdown_timeout=CLOSE_SECONDS, auto_decompress=False)
    await listening.setup()
    stack.push_async_callback(listening.cleanup)
    await web.TCPSite(listening, settings.host, port).start()


async def _unless(stop: asyncio.Event, doing: Coroutine[Any, Any, T]) -> T | None:
    """What it returns; None if the process is to stop first."""
    work, stopped = asyncio.create_task(doing), asyncio.create_task(stop.wait())
    await asyncio.wait([work, stopped], return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if not work.done():
        work.cancel()
        return None
    return work.result()
