"""The life of the API process: start the engine, serve, drain, exit.

On SIGTERM uvicorn closes its sockets at once and cuts running requests. So the signals are handled here: /ready turns
to 503, new requests get a retriable 503, running ones end, and only then uvicorn is told to stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import time
from collections.abc import Callable, Iterator
from socket import SO_SNDBUF, SOL_SOCKET
from typing import Any

import structlog
import uvicorn
import uvloop
from starlette.types import ASGIApp

from llmendpoint_server.api.app import make_app
from llmendpoint_server.api.http_protocol import BoundedProtocol
from llmendpoint_server.api.interfaces import Engine
from llmendpoint_server.api.service import Service
from llmendpoint_server.api.socket_bounds import BoundedSocket
from llmendpoint_server.api.web_socket import FRAME_BYTES_MAX
from llmendpoint_server.errors import BadConfiguration
from llmendpoint_server.exits import EngineEnd
from llmendpoint_server.settings import Settings

KEEP_ALIVE_S = 150
"""Above any proxy's idle timeout, because a proxy may reuse a connection that is being closed. The gateway closes its
own after 4 s."""
SEND_BUFFER_BYTES = 2**18
LAST_BYTES_S = 5
"""For answers that are complete but not yet sent, after a drain or the engine's end."""


class Uvicorn(uvicorn.Server):
    """uvicorn without its signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Process:
    """One run of the server. `run` returns at its end, or raises the LoadError that ended it."""

    def __init__(self, settings: Settings, service: Service, app: ASGIApp) -> None:
        self._settings = settings
        self._engine, self._traces = service.engine, service.traces
        self._app = app
        self._log = structlog.get_logger()
        self._stop = asyncio.Event()
        self._signals = 0

    async def run(self) -> EngineEnd | None:
        """None after a drain; otherwise why the engine ended. Raises BadConfiguration if the port is taken."""
        engine = self._engine
        server = self._make_server()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        await engine.start()
        gc.freeze()  # otherwise each full collection visits all modules: all streams stand still for 50 ms and more
        serving = asyncio.create_task(self._serve(server))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            happenings: set[asyncio.Future[Any]] = {serving, stopping, engine.ended}
            await asyncio.wait(happenings, return_when=asyncio.FIRST_COMPLETED)
            end = None
            if not engine.ended.done() and not serving.done():
                end = await self._drain(engine)
            end = engine.ended.result() if engine.ended.done() else end
            server.should_exit = True
            await serving
            return end
        finally:
            stopping.cancel()
            await engine.stop()
            await asyncio.to_thread(self._traces.close)

    def _make_server(self) -> Uvicorn:
        settings = self._settings
        return Uvicorn(
            uvicorn.Config(
                self._app, host=settings.host, port=settings.port, loop="uvloop", http=BoundedProtocol,
                ws=BoundedSocket, ws_max_size=FRAME_BYTES_MAX, ws_per_message_deflate=False,
                lifespan="off", log_config=None, access_log=False, server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S, timeout_graceful_shutdown=LAST_BYTES_S,
            )
        )  # fmt: skip

    async def _serve(self, server: Uvicorn) -> None:
        config = server.config
        try:
            socket = config.bind_socket()  # logs it and raises SystemExit if the port is taken
        except SystemExit:
            raise BadConfiguration(
                f"Cannot listen on {config.host}:{config.port}: the address is taken or not allowed. Choose another --port."
            ) from None
        # Limits what the kernel holds of an answer that is not read; by itself it would grow to several MiB.
        socket.setsockopt(SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES)
        socket.listen(config.backlog)  # before uvicorn does: a reader of the line below may connect at once
        host, port = socket.getsockname()[:2]
        self._log.info(
            "listening", host=host, port=port, model=self._settings.model, names=self._settings.served_names
        )
        await server.serve(sockets=[socket])

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        self._log.info("signal", name=signal.Signals(number).name, count=self._signals)
        self._stop.set()

    async def _drain(self, engine: Engine) -> EngineEnd | None:
        """Wait until nothing runs, the time is up, a second signal comes or the engine ends. If the engine is stuck,
        returns why without waiting: then its failed liveness probe is why the signal came."""
        timeout, started = self._settings.drain_timeout, time.monotonic()
        self._log.info("draining", in_flight=engine.in_flight, timeout_s=timeout)
        engine.drain()
        while engine.in_flight and not engine.ended.done() and engine.failure() is None:
            if time.monotonic() - started > timeout or self._signals > 1:
                why = "a second signal" if self._signals > 1 else f"the drain timeout of {timeout:g} s"
                self._log.warning("requests cut", in_flight=engine.in_flight, why=why)
                engine.fail_all(f"The server is shutting down; this request was cut by {why}.")
                break
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(engine.idle.wait(), 0.1)
        if (failure := engine.failure()) is not None:
            engine.fail_all(failure)
            return EngineEnd(failure, 1)
        self._log.info("drained", duration_s=round(time.monotonic() - started, 3))
        return None


def _leave(number: int, _: object) -> None:
    """Exit at once: nothing is served yet, and a normal exit would wait for the threads of a download."""
    structlog.get_logger().info("signal", name=signal.Signals(number).name, count=1)
    os._exit(0)


def serve(
    settings: Settings,
    make_service: Callable[[], Service],
    app_of: Callable[[Service], ASGIApp] = make_app,
) -> EngineEnd | None:
    """Run until a signal or the engine's end. Raises LoadError. `make_service` is called in the event loop's thread."""
    for number in (
        signal.SIGTERM,
        signal.SIGINT,
    ):  # until `run` takes over: `make_service` may download a model
        signal.signal(number, _leave)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def main() -> EngineEnd | None:
            service = make_service()
            return await Process(settings, service, app_of(service)).run()

        return runner.run(main())
