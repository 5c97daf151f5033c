"""A host that is not part of the cluster: a network namespace of our own, joined to this machine by a cable.

With it a test can try what a neighbour of the machine could, without any packet leaving the machine.
"""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.cluster import progress
from tests.cluster.configuration import POD_CIDR

OUTSIDE_ADDRESS = "198.18.0.2"  # from the range for testing network devices
PORT = 8099
_MACHINE_ADDRESS = "198.18.0.1"
_NAMESPACE = "llmendpoint-out"
_CABLE = ("llmendpoint-o0", "llmendpoint-o1")
_SERVER = [
    "python3",
    "-m",
    "http.server",
    str(PORT),
    "--bind",
    OUTSIDE_ADDRESS,
    "--directory",
    "/usr/share/misc",
]


@contextmanager
def outside_host() -> Iterator[list[str]]:
    """The words to put before a command to run it there; an HTTP server listens on OUTSIDE_ADDRESS:PORT."""
    enter = ["ip", "netns", "exec", _NAMESPACE]
    progress.run(["ip", "netns", "add", _NAMESPACE])
    try:
        progress.run(["ip", "link", "add", _CABLE[0], "type", "veth", "peer", "name", _CABLE[1]])
        progress.run(["ip", "link", "set", _CABLE[1], "netns", _NAMESPACE])
        progress.run(["ip", "address", "add", f"{_MACHINE_ADDRESS}/30", "dev", _CABLE[0]])
        progress.run(["ip", "link", "set", _CABLE[0], "up"])
        progress.run([*enter, "ip", "address", "add", f"{OUTSIDE_ADDRESS}/30", "dev", _CABLE[1]])
        progress.run([*enter, "ip", "link", "set", _CABLE[1], "up"])
        progress.run([*enter, "ip", "route", "add", POD_CIDR, "via", _MACHINE_ADDRESS])
        with _served(enter):
            yield enter
    finally:
        progress.run(["ip", "netns", "del", _NAMESPACE])


@contextmanager
def _served(enter: list[str]) -> Iterator[None]:
    server = subprocess.Popen([*enter, *_SERVER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while str(PORT) not in progress.run([*enter, "ss", "-ltn"]):
            assert server.poll() is None, "the HTTP server outside ended"
            assert time.monotonic() < deadline, "the HTTP server outside does not listen after 10 s"
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(10)
