"""The picker process: control plane and decisions, each on its Unix socket, the HTTP port, and the watches."""

import asyncio
import secrets
import signal
import socket as sockets
import time
from pathlib import Path

import aiohttp
import grpc
import structlog
from aiohttp import web
from envoy.service.discovery.v3 import ads_pb2_grpc

from llmendpoint_gateway.core.identity.authentication import Authentication
from llmendpoint_gateway.serve.collectors import EnvoyCollector, KeyCollector, StateCollector
from llmendpoint_gateway.serve.envoy.ads import Ads
from llmendpoint_gateway.serve.envoy.connections import follow_connections
from llmendpoint_gateway.serve.envoy.envoy_stats import EnvoyStats
from llmendpoint_gateway.serve.envoy.process import admin_socket, open_share
from llmendpoint_gateway.serve.http import Pages, make_app
from llmendpoint_gateway.serve.identity.token_reviews import Callers
from llmendpoint_gateway.serve.outcome.access_log import access_log_handler
from llmendpoint_gateway.serve.outcome.outcomes import Outcomes
from llmendpoint_gateway.serve.parts import make_parts
from llmendpoint_gateway.serve.request.decisions import DecisionServer, decisions_socket
from llmendpoint_gateway.settings import Settings
from llmendpoint_gateway.watch.key_watch import KeyWatch
from llmendpoint_gateway.watch.list_watch import SOURCES, Watch
from llmendpoint_gateway.watch.load_readings import Readings

GRPC_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_concurrent_streams", 1_000_000),
    # Envoy pings every 5 s. By default gRPC answers that with GOAWAY "too_many_pings".
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
    # Envoy is pinged, too: one that hangs keeps its connection, and what it does not read would be kept for it.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 20_000),
]
log = structlog.get_logger()


async def run_picker(settings: Settings) -> None:
    """Runs until SIGTERM or SIGINT."""
    ads = Ads(with_keys=settings.authentication is not Authentication.OFF)
    parts = make_parts(
        ads,
        time.monotonic,
        asyncio.get_running_loop().call_later,
        settings.hold_seconds,
        first_ticket=secrets.randbits(62) + 1,  # random: no ticket equals one of the previous picker
        trusted_hops=settings.trusted_hops,
        traces_endpoint=settings.traces_endpoint,
        trace_sampling=settings.trace_sampling,
        authentication=settings.authentication,
    )
    placement, control, registry = parts.placement, parts.control, parts.metrics.registry
    access, socket = settings.access, settings.socket
    connector = aiohttp.TCPConnector(ssl=access.ssl or True, socket_factory=_kept_alive)
    # A list of many slices is one long line, and so is a watch event.
    async with (
        aiohttp.ClientSession(connector=connector, read_bufsize=1 << 21) as session,
        EnvoyStats(admin_socket(socket)) as envoy,
    ):
        watches = [
            Watch(s, session, access, control, placement.reach, settings.namespace, time.monotonic)
            for s in SOURCES
        ]
        of_keys = []
        if gate := parts.gate:
            of_keys.append(KeyWatch(gate.keys, session, access, settings.namespace, time.monotonic))
            registry.register(KeyCollector(gate.keys, time.monotonic))
        registry.register(StateCollector(control, ads, parts.metrics.refusals))
        of_envoy = EnvoyCollector()
        registry.register(of_envoy)
        readings = Readings(placement, parts.held, parts.outcomes, time.monotonic)
        callers = Callers(session, access, settings.operator, time.monotonic)
        app = make_app(Pages(control, ads, registry, of_envoy, envoy, parts.demand, callers))
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, settings.host, settings.http_port).start()
        socket.unlink(missing_ok=True)  # a killed process leaves its socket behind
        server = await serve_grpc(socket, ads, parts.outcomes)
        decisions = DecisionServer(decisions_socket(socket), parts.picker)
        await decisions.start()
        log.info(
            "picker started",
            socket=str(socket),
            http_port=settings.http_port,
            namespace=settings.namespace or "(all)",
        )
        follow = follow_connections(envoy, open_share(socket))
        runs = [
            *(watch.run() for watch in watches),
            *(watch.run() for watch in of_keys),
            control.run(),
            parts.demand.run(),
            readings.run(),
            follow,
        ]
        tasks = [asyncio.create_task(run) for run in runs]
        stop = asyncio.create_task(_stopped())
        done, _ = await asyncio.wait([*tasks, stop], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        decisions.stop()
        await server.stop(None)
        await runner.cleanup()
        await asyncio.to_thread(parts.traces.close)
        for task in done:
            task.result()  # no task ends by itself, so its error is the process's
        log.info("picker stopped")


def _kept_alive(address: aiohttp.AddrInfoType) -> sockets.socket:
    """A connection that notices within 11 s that the other side is cut off: a watch is silent for minutes."""
    connection = sockets.socket(address[0], address[1], address[2])
    connection.setsockopt(sockets.SOL_SOCKET, sockets.SO_KEEPALIVE, 1)
    for option, value in ((sockets.TCP_KEEPIDLE, 5), (sockets.TCP_KEEPINTVL, 2), (sockets.TCP_KEEPCNT, 3)):
        connection.setsockopt(sockets.IPPROTO_TCP, option, value)
    return connection


async def serve_grpc(socket: Path, ads: Ads, outcomes: Outcomes) -> grpc.aio.Server:
    server = grpc.aio.server(options=GRPC_OPTIONS)
    ads_pb2_grpc.add_AggregatedDiscoveryServiceServicer_to_server(ads, server)
    server.add_generic_rpc_handlers((access_log_handler(outcomes),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    return server


async def _stopped() -> None:
    event = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    await event.wait()
