"""Ports for what tests start.

A server that gets its port by an argument binds it later than the test chose it. A port that the kernel
gives to port 0 may by then be the own port of an outgoing connection. So these ports lie below
`net.ipv4.ip_local_port_range`, and none is given twice by one process.
"""

from __future__ import annotations

import errno
import random
import socket

RANGE = range(10_000, 20_000)
_choice = random.SystemRandom()
_given: set[int] = set()


def free_port() -> int:
    """A TCP port that nothing listens on at any IPv4 address of this machine."""
    for port in _choice.sample(RANGE, len(RANGE)):
        if port not in _given and is_free(port, "0.0.0.0"):
            _given.add(port)
            return port
    raise RuntimeError(f"no TCP port is free from {RANGE.start} to {RANGE.stop - 1}")


def is_free(port: int, address: str) -> bool:
    """False where something listens on `port`. True for an address that this machine does not have yet."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRNOTAVAIL
    return True
