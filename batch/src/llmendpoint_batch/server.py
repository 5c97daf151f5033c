"""The process: the folder's lock, the database, the runner, and the two ports."""

import asyncio
import signal
from contextlib import AsyncExitStack

import structlog
from aiohttp import web

from llmendpoint_batch.api.app import make_api, make_state
from llmendpoint_batch.api.service import Service
from llmendpoint_batch.metrics import Metrics
from llmendpoint_batch.settings import Settings
from llmendpoint_batch.store import clock, files
from llmendpoint_batch.store.database import Database, take_folder
from llmendpoint_batch.store.folder import Folder
from llmendpoint_batch.work.housekeeping import keep_house
from llmendpoint_batch.work.runner import Runner
from llmendpoint_batch.work.times import Times

CLOSE_SECONDS = 5.0
log = structlog.get_logger()


async def serve(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT. Lines under way are sent again by the next process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    metrics = Metrics()
    async with AsyncExitStack() as stack:
        # An old pod may be ending on another node: it answers no more once this one has the folder.
        await asyncio.to_thread(take_folder, settings.data, wait=True)
        folder = Folder(settings.data)
        database = Database(settings.data / "batches.sqlite")
        stack.callback(database.close)
        swept = folder.sweep(await database.read(files.ids))
        times = Times(await database.read(clock.saved))
        runner = Runner(database, folder, times, settings, metrics)
        api = make_api(Service(database, folder, times, settings, runner.wake))
        for app, port in ((api, settings.port), (make_state(metrics), settings.state_port)):
            listening = web.AppRunner(
                app, access_log=None, shutdown_timeout=CLOSE_SECONDS, auto_decompress=False
            )
            await listening.setup()
            stack.push_async_callback(listening.cleanup)
            await web.TCPSite(listening, settings.host, port).start()
        log.info("started", port=settings.port, gateway=settings.gateway, swept_files=swept)
        works = [
            asyncio.create_task(runner.run()),
            asyncio.create_task(keep_house(database, folder, times, metrics)),
        ]
        stopped = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait([*works, stopped], return_when=asyncio.FIRST_COMPLETED)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)
        for task in done:
            task.result()  # no work ends by itself, so its error is the process's
    log.info("stopped")
