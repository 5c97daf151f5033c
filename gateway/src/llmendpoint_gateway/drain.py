"""Before a gateway pod is stopped: its Envoy has clients open their next connection elsewhere, and goes on serving meanwhile.

A pod that has left its Service gets no new connections, but all the requests of those that there are: clients keep them
for as long as they are not told to close them.
"""

import contextlib
import http.client
import socket as sockets
import time
from pathlib import Path

import structlog

from llmendpoint_gateway.envoy import admin_socket
from llmendpoint_gateway.errors import EnvoyAway

TIMEOUT = 5.0  # seconds
log = structlog.get_logger()


def run_drain(socket: Path, seconds: float) -> None:
    """Returns after so long, whether Envoy could be told or not: what has begun is to have its time in any case."""
    try:
        close_connections(admin_socket(socket))
    except EnvoyAway as error:
        log.warning(str(error))
    time.sleep(seconds)


def close_connections(admin: Path) -> None:
    """From now on each answer has `connection: close` (HTTP/2: GOAWAY). EnvoyAway.

    Of Envoy's two ways this is the one that begins at once with every answer, and keeps the listener open;
    `/drain_listeners?graceful` begins with a few and takes its drain time, 600 s, for all.
    """
    connection = http.client.HTTPConnection("envoy")
    with contextlib.closing(connection):
        try:
            connection.sock = sockets.socket(sockets.AF_UNIX)
            connection.sock.settimeout(TIMEOUT)
            connection.sock.connect(str(admin))
            connection.request("POST", "/healthcheck/fail")
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise EnvoyAway(f"Envoy's admin socket {admin} does not answer: {error!r}") from None
    if status != 200:
        raise EnvoyAway(f"Envoy's admin socket {admin} answered {status}")
