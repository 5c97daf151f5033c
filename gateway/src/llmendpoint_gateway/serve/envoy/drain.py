"""Before a gateway pod stops: Envoy tells clients to open their next connection elsewhere, and goes on serving
meanwhile.

A pod that has left its Service gets no new connections, but still gets all requests of its open ones. Clients keep
these until they are told to close them.
"""

import contextlib
import http.client
import json
import socket as sockets
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from llmendpoint_gateway.core.envoy.listener import STATS_NAME
from llmendpoint_gateway.errors import EnvoyAway
from llmendpoint_gateway.serve.envoy.process import admin_socket

TIMEOUT = 5.0  # seconds
LEAST_SECONDS = 5.0
"""New requests come until every node knows that the pod has left its Service."""
QUIET_SECONDS = 1.0
"""After this time without a request, none is active, and none is about to come over the open connections."""
POLL_SECONDS = 0.2
ACTIVE, TOTAL = (f"http.{STATS_NAME}.downstream_rq_{name}" for name in ("active", "total"))
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Requests:
    """Active requests, and all requests that ever began."""

    active: int
    total: int


def run_drain(socket: Path, seconds: float, least: float = LEAST_SECONDS) -> None:
    """Returns once the last request has ended: after `least` at the earliest, and after `seconds` at the latest. While
    Envoy does not answer, requests may be active."""
    admin, now = admin_socket(socket), time.monotonic
    begun = quiet_since = now()
    seen: Requests | None = None
    try:
        close_connections(admin)
    except EnvoyAway as error:
        log.warning(str(error))
    while now() - begun < seconds:
        time.sleep(min(POLL_SECONDS, max(0.0, begun + seconds - now())))
        before, seen = seen, _requests(admin)
        # A short request may begin and end between two polls; `total` shows it.
        if seen is None or seen.active or seen != before:
            quiet_since = now()
        elif now() - begun >= least and now() - quiet_since >= QUIET_SECONDS:
            log.info("drained", seconds=round(now() - begun, 1))
            return
    if (left := _requests(admin)) and left.active:
        log.warning("requests are cut: they did not end in time", seconds=seconds, requests=left.active)


def _requests(admin: Path) -> Requests | None:
    """None if Envoy does not answer."""
    try:
        stats = json.loads(_ask(admin, "GET", f"/stats?filter=^({ACTIVE}|{TOTAL})$&format=json"))["stats"]
        values = {stat["name"]: int(stat["value"]) for stat in stats if "name" in stat}
        return Requests(values[ACTIVE], values[TOTAL])
    except (EnvoyAway, ValueError, KeyError):
        return None


def close_connections(admin: Path) -> None:
    """From now on each answer has `connection: close` (HTTP/2: GOAWAY). Raises EnvoyAway.

    Of Envoy's two ways, this one begins at once with every answer and keeps the listener open.
    `/drain_listeners?graceful` begins with a few and takes its drain time, 600 s, for all.
    """
    _ask(admin, "POST", "/healthcheck/fail")


def _ask(admin: Path, method: str, path: str) -> bytes:
    connection = http.client.HTTPConnection("envoy")
    with contextlib.closing(connection):
        try:
            connection.sock = sockets.socket(sockets.AF_UNIX)
            connection.sock.settimeout(TIMEOUT)
            connection.sock.connect(str(admin))
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise EnvoyAway(f"Envoy's admin socket {admin} does not answer: {error!r}") from None
    if answer.status != 200:
        raise EnvoyAway(f"Envoy's admin socket {admin} answered {answer.status}")
    return body
