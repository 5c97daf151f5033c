"""The command `llmendpoint-probe`."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from dataclasses import asdict

import structlog
from aiohttp import web

from .engine import Engine
from .monitor import Monitor
from .pulse import Pulse

EXAMPLES = """\
examples:
  llmendpoint-probe                                             an engine at http://127.0.0.1:8000 with /health
  llmendpoint-probe --engine-url http://127.0.0.1:9000 --health-path /v1/health/ready
  curl -i http://127.0.0.1:8090/ready                           200 once a generation succeeded, else 503 and why
  curl -i http://127.0.0.1:8090/live                            503 and why once the engine is away, silent or stuck
"""


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="llmendpoint-probe",
        description="Says that an engine is ready once it has made a generation, and again after each of its starts.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--engine-url", default="http://127.0.0.1:8000", metavar="URL", help="base URL of the engine (default: %(default)s)"
    )  # fmt: skip
    parser.add_argument(
        "--health-path", default="/health", metavar="PATH", help="answers 2xx while the engine runs (default: %(default)s)"
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=8090, help="port of /ready, /live and /healthz (default: %(default)s)")  # fmt: skip
    parser.add_argument(
        "--generation-timeout", type=float, default=60.0, metavar="SECONDS",
        help="how long one generation may take before it is tried again (default: 60)",
    )  # fmt: skip
    parser.add_argument(
        "--stuck-after", type=float, default=120.0, metavar="SECONDS",
        help="how long an engine that has generated may then leave generations unanswered, without counting a token in "
        "its /metrics, before /live says 503 (default: 120); it is asked for one after a quarter of that",
    )  # fmt: skip
    return parser.parse_args(argv)


def make_app(monitor: Monitor) -> web.Application:
    """/ready, /live and /healthz."""

    async def ready(_: web.Request) -> web.Response:
        found = await monitor.ready()
        return web.json_response(asdict(found), status=200 if found.ready else 503)

    async def live(_: web.Request) -> web.Response:
        found = monitor.alive()
        body = {"live": found.ready, "status": found.status, "detail": found.detail}
        return web.json_response(body, status=200 if found.ready else 503)

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app = web.Application()
    app.add_routes([web.get("/ready", ready), web.get("/live", live), web.get("/healthz", healthz)])
    return app


async def serve(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    engine = Engine(options.engine_url, options.health_path, options.generation_timeout)
    pulse = Pulse(engine, options.stuck_after)
    monitor = Monitor(engine, pulse)
    runner = web.AppRunner(make_app(monitor), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=options.port).start()
        async with monitor.running(), pulse.running():
            await stop.wait()
    finally:
        await runner.cleanup()
        await engine.close()


def main() -> int:
    """Entry point: 0 after SIGTERM, 1 if the port is taken."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    options = parse()
    try:
        asyncio.run(serve(options))
    except OSError as error:
        structlog.get_logger().error(f"llmendpoint-probe cannot listen on port {options.port}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
